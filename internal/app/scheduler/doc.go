// Package scheduler makes rounds for as long as a process serves: which process has which
// source, when its next round is due, back-off and drain, and what /readyz and /metrics say.
package scheduler
