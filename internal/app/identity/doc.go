// Package identity establishes who makes a request and who may decide one: callers verified by AWS
// or a service, tokens, sign-in, roles, and the keys that sign for a state.
package identity
