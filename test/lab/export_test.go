package lab

// For tests of Boot's patience.
var (
	BootWithin = bootWithin
	ErrNotUp   = errNotUp
)
