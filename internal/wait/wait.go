// Package wait lets time pass until a context ends.
package wait

import (
	"context"
	"time"
)

// For returns nil after a time, or the context's error once the context ends before.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
