package inventory

import "errors"

// Errors that adapters wrap, so that callers can tell them apart whatever the
// provider called them.
var (
	// ErrNotFound: the resource is not there (any more).
	ErrNotFound = errors.New("not found")
	// ErrDenied: the credentials may not do that.
	ErrDenied = errors.New("denied")
	// ErrUnauthenticated: there are no usable credentials.
	ErrUnauthenticated = errors.New("no usable credentials")
	// ErrThrottled: the provider asked to slow down and retries did not help.
	ErrThrottled = errors.New("throttled")
	// ErrNoCapacity: the provider has no machine of that type to give.
	ErrNoCapacity = errors.New("no capacity")
	// ErrUnavailable: the interface does not exist there or did not answer.
	ErrUnavailable = errors.New("unavailable")
)
