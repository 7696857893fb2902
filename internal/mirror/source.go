package mirror

import "pmnbd/persist"

// Sources returns the members of which one can take the place of the source before the life's first generation is active:
// those that it begins with. Nobody was served and nothing copied, so each of them has every flushed write, unless it
// lost its contents meanwhile (mirror §4.4).
func (v *View) Sources() persist.Members {
	if !v.Pending || v.Serves() {
		return 0
	}
	return v.Record.F &^ v.Equal
}

// From returns v with leg, one of Sources, as its source.
func (v View) From(leg int) View {
	v.Equal = persist.Member(leg)
	return v
}
