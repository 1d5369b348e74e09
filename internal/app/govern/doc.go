// Package govern decides what may run: shared settings, policies, estimates, the gate, approvals
// and the audit log.
package govern
