// Package scheduler runs the rounds of a service: it divides sources among processes, schedules
// rounds, backs off and drains, and provides /readyz and /metrics.
package scheduler
