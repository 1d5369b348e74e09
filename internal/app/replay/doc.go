// Package replay records usage and replays it: recordings, backtests on behalf of callers, and
// session templates from what a machine did.
package replay
