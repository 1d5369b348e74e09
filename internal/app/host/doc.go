// Package host runs on a machine itself: the agent of a session, the entry for SSH, and checkpoints
// of its work.
package host
