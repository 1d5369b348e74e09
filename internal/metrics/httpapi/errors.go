package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// ErrTooLarge is returned when the answer to one query is too large: half of it may be answered.
var ErrTooLarge = errors.New("the answer is too large")

// Error is a refusal of the server.
type Error struct {
	// Status is that of HTTP.
	Status int
	// Kind is the errorType of the API, "unknown" where its error has none; empty where
	// something else than the API answered.
	Kind string
	// Message is that of the API, else the status in words. It is one line without secrets.
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Busy reports whether the server was too busy to answer, in each of its [Attempts].
func (e *Error) Busy() bool { return busy(e.Status) && e.Kind != "timeout" }

// refusal reads an answer that has another status than 200.
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

// FormatError is returned when an answer is not one of Prometheus's API.
type FormatError struct {
	// Reason is one line without secrets.
	Reason string
	// HTML is true if the answer is a page.
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

// ClockError is returned when the server's clock is not this machine's.
type ClockError struct {
	// Ahead is how far it is ahead, below 0 how far behind.
	Ahead time.Duration
}

// Error implements error.
func (e *ClockError) Error() string {
	if e.Ahead < 0 {
		return fmt.Sprintf("its clock is %s behind this machine's", plain.Duration(-e.Ahead))
	}
	return fmt.Sprintf("its clock is %s ahead of this machine's", plain.Duration(e.Ahead))
}
