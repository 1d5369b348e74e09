// Package runtime is the base of every operation: a process and its host, one request of it, its
// caller, the location of the state, and the configuration, settings and prices in force.
package runtime
