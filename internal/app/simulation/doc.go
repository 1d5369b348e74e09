// Package simulation runs the simulated account: a world with a clock, a state and people of
// its own, its books, and the demonstration in which policies act on it.
package simulation
