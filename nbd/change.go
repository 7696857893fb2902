package nbd

import (
	"errors"
	"fmt"
	"slices"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// A BusyError means that an export cannot be withdrawn, because clients use it.
type BusyError struct {
	Export  string
	Clients int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("export %q has clients (%d): detach or unmount it first", e.Export, e.Clients)
}

// Change makes the server serve exports, and no others. The first is the default. Clients of an export
// that was served before under the same name, of the same device and as writable, go on. An export that
// exports does not have is withdrawn: no client can choose it any more. If clients use it, Change fails
// with a *BusyError for each such export, and changes nothing. It also changes nothing if New would
// refuse exports. The devices of withdrawn exports can be closed once Change has returned.
func (s *Server) Change(exports ...Export) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	old := s.served()
	memories := make(map[*backend.Arenas]*memory)
	for _, x := range old {
		memories[x.arenas] = x.memory
	}
	next := make([]*export, 0, len(exports))
	for _, e := range exports {
		if len(e.Name) > wire.MaxString {
			return fmt.Errorf("export name of %d bytes: at most %d are allowed", len(e.Name), wire.MaxString)
		}
		if find(next, e.Name) != nil {
			return fmt.Errorf("export %q: the name is taken", e.Name)
		}
		x := find(old, e.Name)
		if x == nil || x.dev != e.Device || x.readOnly != e.ReadOnly {
			var err error
			if x, err = newExport(e, s.log, s.cfg.MaxConnections, memories); err != nil {
				return fmt.Errorf("export %q: %w", e.Name, err)
			}
		}
		next = append(next, x)
	}
	if len(next) == 0 {
		return errors.New("a server needs at least one export")
	}
	gone := slices.DeleteFunc(slices.Clone(old), func(x *export) bool { return slices.Contains(next, x) })
	if err := withdraw(gone); err != nil {
		return err
	}
	s.exports.Store(&next)
	return nil
}

// withdraw lets no client enter the exports any more, or changes nothing.
func withdraw(exports []*export) error {
	var busy []error
	for _, x := range exports {
		x.mu.Lock() // of all at once: nobody else holds two
		defer x.mu.Unlock()
		if n := len(x.live); n > 0 {
			busy = append(busy, &BusyError{x.name, n})
		}
	}
	for _, x := range exports {
		x.withdrawn = len(busy) == 0
	}
	return errors.Join(busy...)
}

// served returns the exports that are served now. Nobody changes them.
func (s *Server) served() []*export { return *s.exports.Load() }

// find finds the export called name, or returns nil.
func find(exports []*export, name string) *export {
	for _, x := range exports {
		if x.name == name {
			return x
		}
	}
	return nil
}
