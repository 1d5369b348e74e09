// Package runtime is what every operation stands on: a process and its host, one request of
// it, who makes the request, where the state is, and the configuration, settings and prices
// that are in force.
package runtime
