package cli

import (
	"context"
	"fmt"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TestInterruptReportsFinishedCalls checks that a signal after an action does not say that nothing
// happened.
func TestInterruptReportsFinishedCalls(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	line := func(r action.Result, id string) action.Line {
		return action.Line{Result: r, Verb: policy.Terminate, Resource: inventory.Ref{ID: id}}
	}
	stopped := fmt.Errorf("act on aws/1: %w", ctx.Err())
	for _, tc := range []struct {
		err  error
		want string
	}{
		{stopped, "interrupted before it was done"},
		{runtime.CutShort(stopped, nil), "interrupted; nothing was sent or changed"},
		{
			runtime.CutShort(stopped, []action.Line{line(action.ResultWaiting, "i-0")}),
			"interrupted; nothing was sent or changed",
		},
		{
			runtime.CutShort(stopped, []action.Line{
				line(action.ResultConfirmed, "i-1"), line(action.ResultWaiting, "i-2"),
				line(action.ResultFailed, "i-3"),
			}),
			"interrupted; done before: terminate i-1: confirmed, terminate i-3: failed; `curfew audit` has it all",
		},
	} {
		got := classify(ctx, runtime.StateError(clouds.CloudError(tc.err)))
		if got.exit != ExitInterrupted || got.Error() != tc.want {
			t.Errorf("exit %d, %q; want %q", got.exit, got.Error(), tc.want)
		}
	}
}
