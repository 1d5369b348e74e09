package sessions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

// refuseLocal refuses sessions of this machine to callers of a service, unless the configuration
// lets them have some: what they start runs as the user of the service.
func refuseLocal(a *Sessions, cloud string) error {
	if !a.Request.Storage.Serves() || cloud != clouds.ProviderLocal || a.Config.Local.Serve {
		return nil
	}
	return &runtime.Error{Class: runtime.Denied, Code: "local_not_served", Err: errors.New("the service starts and extends no sessions on its own machine"),
		Hint: "set local.serve: true in the service's curfew.yaml, or ask for another --cloud"}
}

// askCaller asks what the caller may do with the sessions of a name, and for an owner.
func askCaller(a *Sessions, o UpOptions, before []session.Session, owner *inventory.Owner) error {
	if o.May == nil {
		return nil
	}
	var run *view.Run
	if s := newest(before); s != nil {
		r := view.NewRun(*s, a.now())
		run = &r
	}
	return o.May(run, owner)
}

// Answer is the document of a session that was asked for, or asked to run longer, with what
// the gate decided; nil is nothing to decide. The error says why the session does not go on.
func (a *Sessions) Answer(ctx context.Context, s session.Session, d *gate.Decision) (view.Run, error) {
	run, now, err := a.Run(ctx, s.ID)
	if err != nil {
		return run, err
	}
	run.Notes = a.Notes(now)
	if d == nil {
		return run, nil
	}
	run.Gate = &view.RunGate{Decision: string(d.Decision), Reasons: append([]string{}, d.Reasons...)}
	why := strings.Join(d.Reasons, "; ")
	switch d.Decision {
	case gate.Allow:
		return run, nil
	case gate.Held:
		return run, &runtime.Error{Class: runtime.Held, Code: "needs_approval", Err: fmt.Errorf("session %s needs approval: %s", s.Name, why),
			Hint: fmt.Sprintf("an approver gives `curfew approve %s`; then give the same command again", d.ApprovalID)}
	}
	return run, &runtime.Error{Class: runtime.Denied, Code: "denied", Err: fmt.Errorf("session %s is denied: %s", s.Name, why)}
}
