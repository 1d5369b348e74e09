// Package audit scans accounts, keeps what a scan saw, and answers from that: findings,
// resources, their history, and the resource that a person means by a name.
package audit
