package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// ErrTooLarge is returned when the response to a query is too large; half of it may succeed.
var ErrTooLarge = errors.New("the answer is too large")

// Error is an error response of the server.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Kind is the errorType of the API, "unknown" if the error has none; empty if something other
	// than the API responded.
	Kind string
	// Message is the API's message, or the status text. It is one line without secrets.
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Busy reports whether the server was too busy to respond in each of the [Attempts].
func (e *Error) Busy() bool { return busy(e.Status) && e.Kind != "timeout" }

// refusal parses a response with a status other than 200.
func refusal(status string, text []byte) *Error {
	var body struct {
		Type    string `json:"errorType"`
		Message string `json:"error"`
	}
	if json.Unmarshal(text, &body) == nil && body.Message != "" {
		return &Error{Kind: cmp.Or(body.Type, "unknown"), Message: body.Message}
	}
	return &Error{Message: status}
}

// FormatError is returned when a response is not one of Prometheus's API.
type FormatError struct {
	// Reason is one line without secrets.
	Reason string
	// HTML is true if the response is an HTML page.
	HTML bool
}

// Error implements error.
func (e *FormatError) Error() string {
	return "the answer is not that of Prometheus's API: " + e.Reason
}

// UnreachableError is returned when no attempt reached the server.
type UnreachableError struct {
	// Reason is one line without secrets.
	Reason string
	// Certificate is true if the server's certificate is not trusted.
	Certificate bool
}

// Error implements error.
func (e *UnreachableError) Error() string { return e.Reason }

// ClockError is returned when the server's clock differs from this machine's.
type ClockError struct {
	// Ahead is the server's lead; negative if it is behind.
	Ahead time.Duration
}

// Error implements error.
func (e *ClockError) Error() string {
	if e.Ahead < 0 {
		return fmt.Sprintf("its clock is %s behind this machine's", plain.Duration(-e.Ahead))
	}
	return fmt.Sprintf("its clock is %s ahead of this machine's", plain.Duration(e.Ahead))
}
