// Package identity says who makes a request and who may decide one: callers that AWS or a
// service verifies, tokens, sign-in, roles, and the keys that sign for a state.
package identity
