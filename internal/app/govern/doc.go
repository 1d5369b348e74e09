// Package govern decides what may run: shared settings, policies, estimates, the gate,
// approvals, and the audit log of all of it.
package govern
