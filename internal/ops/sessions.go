package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// UpInput describes a session to start.
type UpInput struct {
	Body struct {
		Name    string   `json:"name" minLength:"1" maxLength:"100" example:"demo" doc:"The person's word for it. A session of that name that is over starts again as it was, with its work, unless the other fields say otherwise."`
		Content string   `json:"content,omitempty" maxLength:"900000" doc:"The text of a session file (curfew.session/v1)."`
		File    string   `json:"file,omitempty" maxLength:"400" doc:"What the text is called, for messages." flag:"file" short:"f" help:"session <file> (curfew.session/v1)"`
		GPU     string   `json:"gpu,omitempty" maxLength:"80" doc:"An accelerator and how many: L4 or L4:2." flag:"gpu" help:"accelerator and how many: L4 or L4:2"`
		Type    string   `json:"type,omitempty" maxLength:"80" doc:"A machine type, such as g6.2xlarge." flag:"type" help:"machine type, such as g6.2xlarge"`
		CPUs    int      `json:"cpus,omitempty" minimum:"0" maximum:"100000" doc:"CPUs of a machine without a GPU." flag:"cpus" help:"CPUs of a machine without a GPU"`
		Nodes   int      `json:"nodes,omitempty" minimum:"0" maximum:"1000" doc:"Machines that work together." flag:"nodes" help:"machines that work together (default 1)"`
		Spot    bool     `json:"spot,omitempty" doc:"Spot capacity: cheaper, and can be taken away." flag:"spot" help:"spot capacity: cheaper, and can be taken away"`
		Regions []string `json:"regions,omitempty" maxItems:"50" doc:"Regions that it may run in, the preferred first." flag:"region" split:"comma" help:"regions that it may run in, the preferred first"`
		Cloud   string   `json:"cloud,omitempty" enum:"local,aws" doc:"Where it runs; without it as the configuration says. local is the machine of the service, and needs local.serve in its configuration." flag:"cloud" help:"where it runs: local or aws (default: sessions.cloud in curfew.yaml)"`
		Lease   string   `json:"lease,omitempty" maxLength:"40" doc:"How long it may run, such as 4h." flag:"lease" help:"how long it may run, such as 4h (default: sessions.lease in curfew.yaml)"`
		Idle    string   `json:"idle,omitempty" maxLength:"40" doc:"Idle time after which it ends, such as 30m." flag:"idle" help:"idle time after which it ends, such as 30m (default: sessions.idle in curfew.yaml)"`
		DiskGiB int64    `json:"disk_gib,omitempty" minimum:"0" maximum:"1000000" doc:"Size of the disk of each machine in GiB." flag:"disk" help:"size of the disk of each machine in <GiB>"`
		Image   string   `json:"image,omitempty" maxLength:"256" doc:"The image that machines start from." flag:"image" help:"image that machines start from"`
	}
	// Stdin is the file "-" of the command line.
	Stdin io.Reader
}

// options converts the input.
func (in UpInput) options() (sessions.UpOptions, error) {
	b := in.Body
	o := sessions.UpOptions{
		SpecOptions: sessions.SpecOptions{
			File: b.File, Stdin: in.Stdin, GPU: b.GPU, Type: b.Type, CPUs: b.CPUs, Nodes: b.Nodes, Spot: b.Spot,
			Regions: b.Regions, Cloud: b.Cloud,
		},
		Name: b.Name, DiskGiB: b.DiskGiB, Image: b.Image,
	}
	if b.Content != "" {
		o.File, o.Stdin, o.StdinName = "-", strings.NewReader(b.Content), b.File
	}
	var err error
	if o.Lease, err = ParseOptionalDuration("lease", b.Lease); err == nil {
		o.Idle, err = ParseOptionalDuration("idle", b.Idle)
	}
	return o, err
}

// owns reports whether a session is the caller's own.
func (c *Call) owns(r view.Run) bool { return r.AskedBy == c.Who.Name || r.Owner.User == c.Who.Name }

// seesRun reports whether the caller may see a session.
func (c *Call) seesRun(r view.Run) bool {
	return c.Sees(approval.RoleViewer, r.Owner.Team) || c.owns(r)
}

// runs reports whether the caller may extend and end a session: the own one as a user, those of
// others as an operator.
func (c *Call) runs(r view.Run) bool {
	return c.Sees(approval.RoleOperator, r.Owner.Team) || c.owns(r) && c.Sees(approval.RoleUser, r.Owner.Team)
}

// mayUp refuses a session with the name of another person's session, because it would take over its
// work, and one of a team that is not the caller's.
func (c *Call) mayUp(before *view.Run, owner *inventory.Owner) error {
	if before != nil && !c.runs(*before) {
		return denied("not_yours", "the session "+plain.Line(before.Name)+" is another person's",
			"take another name, or let an operator do it")
	}
	if owner != nil && !c.Sees(approval.RoleUser, owner.Team) {
		team := "of no team"
		if owner.Team != "" {
			team = "of the team " + plain.Line(owner.Team)
		}
		return denied("forbidden", "the session is "+team, "name a team of yours as its owner: owner: {team: vision}")
	}
	return nil
}

// session returns a session that the caller may see, by its name or id.
func (c *Call) session(ctx context.Context, id string) (*sessions.Sessions, view.Run, error) {
	all, err := c.Sessions(ctx)
	if err != nil {
		return nil, view.Run{}, err
	}
	s, err := all.Newest(ctx, id)
	if err != nil {
		return nil, view.Run{}, err
	}
	r, err := all.Describe(ctx, s, nil)
	if err == nil && !c.seesRun(r) {
		err = sessions.NoSession(id)
	}
	return all, r, err
}

// running returns a session that the caller may extend and end.
func (c *Call) running(ctx context.Context, id string) (*sessions.Sessions, view.Run, error) {
	all, r, err := c.session(ctx, id)
	if err == nil && !c.runs(r) {
		err = denied("not_yours", "the session "+plain.Line(r.Name)+" is another person's",
			"an operator may extend and end it")
	}
	return all, r, err
}

// oneRun returns the document of one session.
func oneRun(r view.Run) view.Runs { return view.Runs{Schema: view.RunsSchema, Runs: []view.Run{r}} }

// decided returns a session with the gate's decision.
func decided(r view.Run, err error) (Reply[view.Runs], error) {
	if r.ID == "" {
		return Reply[view.Runs]{}, err
	}
	return Reply[view.Runs]{Doc: oneRun(r), Partial: err != nil}, err
}

// SessionsInput selects sessions.
type SessionsInput struct {
	Paging
	All   bool `query:"all" doc:"Those that ended as well." flag:"all" help:"those that ended as well"`
	Yours bool `query:"yours" doc:"Only those that the caller may extend and end."`
}

// ListSessions lists sessions, newest first.
var ListSessions = declare(Operation[SessionsInput, view.Runs]{
	Info: Info{ID: "list-sessions", Method: get, Path: "sessions", Role: approval.RoleViewer, Scoped: true,
		Summary: "List the sessions, the newest first", Schema: view.RunsSchema,
		Command: "ls", Why: sessionsAtState},
	List: listOf(func(d *view.Runs) *[]view.Run { return &d.Runs }, func(r view.Run) string { return r.ID }),
	Do: func(ctx context.Context, c *Call, in SessionsInput) (Reply[view.Runs], error) {
		all, err := c.Sessions(ctx)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		doc, err := all.List(ctx, in.All)
		if err == nil {
			doc.Runs = only(doc.Runs, func(r view.Run) bool { return c.seesRun(r) && (!in.Yours || c.runs(r)) })
		}
		return reply(doc, err)
	},
})

// Up starts a session.
var Up = declare(Operation[UpInput, view.Runs]{
	Info: Info{ID: "up-session", Method: post, Path: "sessions", Role: approval.RoleUser, Scoped: true,
		Summary: "Start a session by the gate's decision; the service launches it, and ends it when its work is done",
		Schema:  view.RunsSchema,
		Example: map[string]any{"name": "demo", "cpus": 1, "lease": "4h"},
		Command: "up", Why: sessionsAtState},
	Send: func(_ context.Context, c *Call, in *UpInput) (err error) {
		if _, err = in.options(); err == nil && in.Body.File != "" {
			in.Body.Content, err = c.readWork(in.Body.File, in.Stdin)
		}
		return err
	},
	Do: func(ctx context.Context, c *Call, in UpInput) (Reply[view.Runs], error) {
		o, err := in.options()
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		all, err := c.Sessions(ctx)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		o.Authorize = c.mayUp
		s, d, err := all.Up(ctx, o)
		if err != nil {
			return Reply[view.Runs]{}, inputError("error", err)
		}
		return decided(all.Describe(ctx, s, d))
	},
})

// SessionInput selects one session.
type SessionInput struct {
	ByID
	Hosts bool `query:"hosts" default:"true" doc:"With what its machines said last."`
}

// GetSession shows one session.
var GetSession = declare(Operation[SessionInput, view.Runs]{
	Info: Info{ID: "get-session", Method: get, Path: "sessions/{id}", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show one session, by its name or its id, with what its machines are doing", Schema: view.RunsSchema,
		Command: "status", Why: sessionsAtState},
	Do: func(ctx context.Context, c *Call, in SessionInput) (Reply[view.Runs], error) {
		all, r, err := c.session(ctx, in.ID)
		if err != nil || !in.Hosts {
			return reply(oneRun(r), err)
		}
		return reply(all.Status(ctx, r.ID))
	},
})

// SessionLogInput selects a page of one session's events, or a part of its output.
type SessionLogInput struct {
	ByID
	Paging
	Part string `query:"part" maxLength:"200" doc:"A part of the output, by the text of its event of the kind output-part: the document has its lines in one event."`
}

// GetSessionLog shows the events of one session.
var GetSessionLog = declare(Operation[SessionLogInput, view.SessionLog]{
	Info: Info{ID: "get-session-log", Method: get, Path: "sessions/{id}/log", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show what happened to one session, in order", Schema: view.SessionLogSchema,
		Command: "logs", Why: sessionsAtState},
	List: joined(func(d *view.SessionLog) *[]view.SessionEvent { return &d.Events }),
	Do: func(ctx context.Context, c *Call, in SessionLogInput) (r Reply[view.SessionLog], err error) {
		all, run, err := c.session(ctx, in.ID)
		if err != nil {
			return r, err
		}
		if in.Part != "" {
			r.Doc, err = all.Output(ctx, []string{run.ID}, in.Part)
			return r, err
		}
		doc, keys, err := all.Journal(ctx, run.ID)
		if err != nil {
			return r, err
		}
		return logPage(in.Paging, doc, keys)
	},
})

// logPage cuts the requested page of a journal, by the keys of its events.
func logPage(p Paging, doc view.SessionLog, keys []string) (r Reply[view.SessionLog], err error) {
	type keyed struct {
		view.SessionEvent
		key string
	}
	events := make([]keyed, len(keys))
	for i, key := range keys {
		events[i] = keyed{doc.Events[i], key}
	}
	events, r.Next, err = page(p, events, func(e keyed) string { return e.key })
	doc.Events = []view.SessionEvent{}
	for _, e := range events {
		doc.Events = append(doc.Events, e.SessionEvent)
	}
	r.Doc = doc
	return r, err
}

// ExtendSessionInput extends the lease of a session.
type ExtendSessionInput struct {
	ByID
	Body struct {
		For string `json:"for" minLength:"1" maxLength:"40" example:"2h" doc:"How much longer: 2h." flag:"for" help:"how much longer, such as 2h"`
	}
}

func (in ExtendSessionInput) by() (time.Duration, error) {
	d, err := config.ParseDuration(in.Body.For)
	if err != nil || d <= 0 {
		return 0, usage(fmt.Errorf("--for %q: it is a duration such as 2h", in.Body.For))
	}
	return d, nil
}

// ExtendSession extends the lease of a session.
var ExtendSession = declare(Operation[ExtendSessionInput, view.Runs]{
	Info: Info{ID: "extend-session", Method: post, Path: "sessions/{id}/extend", Role: approval.RoleUser, Scoped: true,
		Summary: "Let a session run longer, within the lease policy and the budget: your own, or as an operator any",
		Schema:  view.RunsSchema,
		Command: "extend", Why: sessionsAtState},
	Send: func(_ context.Context, _ *Call, in *ExtendSessionInput) error {
		_, err := in.by()
		return err
	},
	Do: func(ctx context.Context, c *Call, in ExtendSessionInput) (Reply[view.Runs], error) {
		by, err := in.by()
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		all, r, err := c.running(ctx, in.ID)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		s, d, err := all.Extend(ctx, r.ID, by)
		if err != nil {
			return Reply[view.Runs]{}, inputError("error", err)
		}
		return decided(all.Describe(ctx, s, d))
	},
})

// DownInput ends a session.
type DownInput struct {
	ByID
	Body struct {
		Discard bool `json:"discard,omitempty" doc:"Give up unsaved work."`
	}
}

// Down saves a session's work and ends it.
var Down = declare(Operation[DownInput, view.Runs]{
	Info: Info{ID: "down-session", Method: post, Path: "sessions/{id}/down", Role: approval.RoleUser, Scoped: true,
		Summary: "Save a session's work, and end the session once that is confirmed: your own, or as an operator any",
		Schema:  view.RunsSchema,
		Command: "down", Why: sessionsAtState},
	Do: func(ctx context.Context, c *Call, in DownInput) (Reply[view.Runs], error) {
		all, r, err := c.running(ctx, in.ID)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		s, err := all.Down(ctx, r.ID, in.Body.Discard)
		if err != nil {
			return Reply[view.Runs]{}, err
		}
		return decided(all.Describe(ctx, s, nil))
	},
})

// One returns the only session of a document.
func One(doc view.Runs, err error) (view.Run, error) {
	if len(doc.Runs) == 0 {
		if err == nil {
			err = errors.New("the document of a session is empty")
		}
		return view.Run{}, err
	}
	return doc.Runs[0], err
}
