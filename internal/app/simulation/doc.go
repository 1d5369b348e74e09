// Package simulation runs the simulated account: a world with its own clock, state, people and
// ledger, and the demonstration in which policies act on it.
package simulation
