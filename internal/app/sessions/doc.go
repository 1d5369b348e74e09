// Package sessions starts, keeps, extends and ends sessions, and adopts machines that people
// launched.
package sessions
