package daemon

import "runtime/debug"

// CrashBySignal has a panic, and the SIGABRT of systemd's watchdog, end the process by SIGABRT, once the stacks of
// all goroutines are in the log. Go would end it with exit code 2. That is the code of a wrong command line, after
// which pmnbd@.service is not started again. A daemon calls it first of all.
func CrashBySignal() { debug.SetTraceback("crash") }
