package status

import (
	_ "embed"
	"net/http"
)

// page is a document that shows live charts of what /metrics says. It needs nothing from elsewhere,
// and shows names as text.
//
//go:embed page.html
var page []byte

// pagePolicy lets the page fetch from its own address and run its own script, and nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handlePage answers / with the page.
func handlePage(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", pagePolicy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(page) // fails if the client has left
	})
}
