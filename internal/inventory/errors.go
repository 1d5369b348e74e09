package inventory

import "errors"

// Errors that adapters wrap, so that callers can distinguish them independently of the provider.
var (
	// ErrNotFound: the resource does not exist (any more).
	ErrNotFound = errors.New("not found")
	// ErrDenied: the credentials lack the permission.
	ErrDenied = errors.New("denied")
	// ErrUnauthenticated: there are no usable credentials.
	ErrUnauthenticated = errors.New("no usable credentials")
	// ErrThrottled: the provider asked to slow down and retries did not help.
	ErrThrottled = errors.New("throttled")
	// ErrNoCapacity: the provider has no capacity of that machine type.
	ErrNoCapacity = errors.New("no capacity")
	// ErrUnavailable: the API does not exist there or did not answer.
	ErrUnavailable = errors.New("unavailable")
)
