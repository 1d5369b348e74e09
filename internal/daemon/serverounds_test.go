package daemon

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// TestARoundByAWrongClockIsNotMade: nothing is read or charged by it.
func TestARoundByAWrongClockIsNotMade(t *testing.T) {
	wrong := &action.SkewError{Ahead: 15 * time.Minute}
	a := &accountRounds{begin: func(context.Context) error { return wrong }} // an engine would be called, and is not there
	if _, err := a.Round(t.Context()); !errors.Is(err, wrong) {
		t.Errorf("the round ended with %v", err)
	}
}
