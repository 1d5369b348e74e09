// Package sessions starts, keeps, extends and ends sessions, and adopts machines that people
// started.
package sessions
