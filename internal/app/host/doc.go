// Package host is what runs on a machine itself: the agent of a session, the door for SSH, and
// checkpoints of its work.
package host
