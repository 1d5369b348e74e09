package gateway

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// refuse answers with an error in the form of the inference protocols. retry over 0 says when the
// caller may try again.
func refuse(w http.ResponseWriter, status int, retry time.Duration, message string) {
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	}
	b, _ := json.Marshal(map[string]string{"error": message}) // strings have no error
	write(w, status, b)
}

// write answers with JSON.
func write(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // who does not read it has gone
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
