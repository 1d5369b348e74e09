package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// Up is the body of a new session.
type Up struct {
	Body struct {
		Name    string   `json:"name" minLength:"1" maxLength:"100" example:"demo" doc:"The person's word for it. A session of that name that is over starts again as it was, with its work, unless the other fields say otherwise."`
		Content string   `json:"content,omitempty" maxLength:"900000" doc:"The text of a session file (curfew.session/v1)."`
		File    string   `json:"file,omitempty" maxLength:"400" doc:"What the text is called, for messages."`
		GPU     string   `json:"gpu,omitempty" maxLength:"80" doc:"An accelerator and how many: L4 or L4:2."`
		Type    string   `json:"type,omitempty" maxLength:"80" doc:"A machine type, such as g6.2xlarge."`
		CPUs    int      `json:"cpus,omitempty" minimum:"0" maximum:"100000" doc:"CPUs of a machine without a GPU."`
		Nodes   int      `json:"nodes,omitempty" minimum:"0" maximum:"1000" doc:"Machines that work together."`
		Spot    bool     `json:"spot,omitempty" doc:"Spot capacity: cheaper, and can be taken away."`
		Regions []string `json:"regions,omitempty" maxItems:"50" doc:"Regions that it may run in, the preferred first."`
		Cloud   string   `json:"cloud,omitempty" enum:"local,aws" doc:"Where it runs; without it as the configuration says. local is the machine of the service, and needs local.serve in its configuration."`
		Lease   string   `json:"lease,omitempty" maxLength:"40" doc:"How long it may run, such as 4h."`
		Idle    string   `json:"idle,omitempty" maxLength:"40" doc:"Time at rest after which it ends, such as 30m."`
		DiskGiB int64    `json:"disk_gib,omitempty" minimum:"0" maximum:"1000000" doc:"Size of the disk of each machine in GiB."`
		Image   string   `json:"image,omitempty" maxLength:"256" doc:"The image that machines start from."`
	}
}

// options are what the body asks for.
func (u Up) options() (daemon.UpOptions, error) {
	b := u.Body
	o := daemon.UpOptions{Name: b.Name, GPU: b.GPU, Type: b.Type, CPUs: b.CPUs, Nodes: b.Nodes, Spot: b.Spot, Regions: b.Regions, Cloud: b.Cloud, DiskGiB: b.DiskGiB, Image: b.Image}
	if b.Content != "" {
		o.File, o.In, o.Called = "-", strings.NewReader(b.Content), b.File
	}
	for _, d := range []struct {
		field, text string
		to          *time.Duration
	}{{"lease", b.Lease, &o.Lease}, {"idle", b.Idle, &o.Idle}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.to, err = config.ParseDuration(d.text); err != nil || *d.to <= 0 {
			return o, problemOf(http.StatusBadRequest, "usage", fmt.Sprintf("%s %q: it is a duration such as 30m or 4h", d.field, d.text), "").exits(exits[daemon.Usage])
		}
	}
	return o, nil
}

// own says whether a session is the caller's own.
func (c *call) own(r view.Run) bool { return r.AskedBy == c.who.Name || r.Owner.User == c.who.Name }

// shows says whether the caller may see a session.
func (c *call) shows(r view.Run) bool { return c.sees(approval.RoleViewer, r.Owner.Team) || c.own(r) }

// runs says whether the caller may extend and end a session: their own as a user, that of
// another as an operator.
func (c *call) runs(r view.Run) bool {
	return c.sees(approval.RoleOperator, r.Owner.Team) || c.own(r) && c.sees(approval.RoleUser, r.Owner.Team)
}

// mayUp says whether the caller may ask for a session of a name: one that has the name is
// theirs to run, because a new one has its work, and a new one is of a team of theirs.
func (c *call) mayUp(before *view.Run, owner *inventory.Owner) error {
	if before != nil && !c.runs(*before) {
		return problemOf(http.StatusForbidden, "not_yours", "the session "+plain.Line(before.Name)+" is another person's", "take another name, or let an operator do it").exits(exits[daemon.Denied])
	}
	if owner != nil && !c.sees(approval.RoleUser, owner.Team) {
		team := "of no team"
		if owner.Team != "" {
			team = "of the team " + plain.Line(owner.Team)
		}
		return problemOf(http.StatusForbidden, "forbidden", "the session is "+team, "name a team of yours as its owner: owner: {team: vision}").exits(exits[daemon.Denied])
	}
	return nil
}

// unstarted is why a session cannot be started or extended as it is asked for: it is the
// caller's.
func unstarted(err error) error {
	var wired *daemon.Error
	var broken *document.Error
	var known *problem
	if err == nil || errors.As(err, &wired) || errors.As(err, &broken) || errors.As(err, &known) {
		return err
	}
	return problemOf(http.StatusUnprocessableEntity, "error", plain.Line(action.Redact(err.Error())), "").exits(exits[daemon.Failed])
}

// withSessions opens the sessions for a call.
func withSessions(ctx context.Context, c *call, do func(all *daemon.Sessions) (answer, error)) (answer, error) {
	all, err := c.rt.OpenSessions(ctx)
	if err != nil {
		return answer{}, err
	}
	defer all.Close()
	return do(all)
}

// session is one that the caller may see, by its name or id.
func (c *call) session(ctx context.Context, all *daemon.Sessions, id string) (view.Run, error) {
	s, err := all.Newest(ctx, id)
	if err != nil {
		return view.Run{}, err
	}
	r, err := all.Answer(ctx, s, nil)
	if err == nil && !c.shows(r) {
		err = daemon.NoSession(id)
	}
	return r, err
}

// running is one that the caller may extend and end.
func (c *call) running(ctx context.Context, all *daemon.Sessions, id string) (view.Run, error) {
	r, err := c.session(ctx, all, id)
	if err == nil && !c.runs(r) {
		err = problemOf(http.StatusForbidden, "not_yours", "the session "+plain.Line(r.Name)+" is another person's", "an operator may extend and end it").exits(exits[daemon.Denied])
	}
	return r, err
}

// oneRun is the document of one session.
func oneRun(r view.Run) view.Runs { return view.Runs{Schema: view.RunsSchema, Runs: []view.Run{r}} }

// registerSessions adds the sessions.
func (s *server) registerSessions() {
	add(s, operation{ID: "list-sessions", Method: get, Path: "/api/v1/sessions", Role: approval.RoleViewer, Scoped: true, Summary: "List the sessions, the newest first", Schema: view.RunsSchema},
		func(ctx context.Context, c *call, in *struct {
			Paging
			All   bool `query:"all" doc:"Those that ended as well."`
			Yours bool `query:"yours" doc:"Only those that the caller may extend and end."`
		}) (answer, error) {
			return withSessions(ctx, c, func(all *daemon.Sessions) (answer, error) {
				doc, err := all.List(ctx, in.All)
				if err != nil {
					return answer{}, err
				}
				var next string
				shown := only(doc.Runs, func(r view.Run) bool { return c.shows(r) && (!in.Yours || c.runs(r)) })
				doc.Runs, next, err = page(in.Paging, shown, func(r view.Run) string { return r.ID })
				return answer{doc: doc, next: next}, err
			})
		})
	add(s, operation{ID: "up-session", Method: post, Path: "/api/v1/sessions", Role: approval.RoleUser, Scoped: true, Summary: "Start a session by the gate's decision; the service launches it, and ends it when its work is done", Schema: view.RunsSchema,
		Example: map[string]any{"name": "demo", "cpus": 1, "lease": "4h"}},
		func(ctx context.Context, c *call, in *Up) (answer, error) {
			return withSessions(ctx, c, func(all *daemon.Sessions) (answer, error) {
				o, err := in.options()
				if err != nil {
					return answer{}, err
				}
				o.May = c.mayUp
				made, d, err := all.Up(ctx, o)
				if err != nil {
					return answer{}, unstarted(err)
				}
				r, err := all.Answer(ctx, made, d)
				return answer{doc: oneRun(r)}, inPart(oneRun(r), r.ID != "", err)
			})
		})
	add(s, operation{ID: "get-session", Method: get, Path: "/api/v1/sessions/{id}", Role: approval.RoleViewer, Scoped: true, Summary: "Show one session, by its name or its id, with what its machines are doing", Schema: view.RunsSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Hosts bool `query:"hosts" default:"true" doc:"With what its machines said last."`
		}) (answer, error) {
			return withSessions(ctx, c, func(all *daemon.Sessions) (answer, error) {
				r, err := c.session(ctx, all, in.ID)
				if err != nil || !in.Hosts {
					return answer{doc: oneRun(r)}, err
				}
				doc, err := all.Status(ctx, r.ID)
				return answer{doc: doc}, err
			})
		})
	add(s, operation{ID: "get-session-log", Method: get, Path: "/api/v1/sessions/{id}/log", Role: approval.RoleViewer, Scoped: true, Summary: "Show what happened to one session, in order", Schema: view.SessionLogSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Paging
		}) (answer, error) {
			return withSessions(ctx, c, func(all *daemon.Sessions) (answer, error) {
				r, err := c.session(ctx, all, in.ID)
				if err != nil {
					return answer{}, err
				}
				doc, keys, err := all.Journal(ctx, r.ID)
				if err != nil {
					return answer{}, err
				}
				type keyed struct {
					view.SessionEvent
					key string
				}
				events := make([]keyed, len(keys))
				for i, key := range keys {
					events[i] = keyed{doc.Events[i], key}
				}
				shown, next, err := page(in.Paging, events, func(e keyed) string { return e.key })
				doc.Events = []view.SessionEvent{}
				for _, e := range shown {
					doc.Events = append(doc.Events, e.SessionEvent)
				}
				return answer{doc: doc, next: next}, err
			})
		})
	add(s, operation{ID: "extend-session", Method: post, Path: "/api/v1/sessions/{id}/extend", Role: approval.RoleUser, Scoped: true, Summary: "Let a session run longer, within the lease policy and the budget: your own, or as an operator any", Schema: view.RunsSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				For string `json:"for" minLength:"1" maxLength:"40" example:"2h" doc:"How much longer: 2h."`
			}
		}) (answer, error) {
			by, err := config.ParseDuration(in.Body.For)
			if err != nil || by <= 0 {
				return answer{}, problemOf(http.StatusBadRequest, "usage", "for is a duration such as 2h", "").exits(exits[daemon.Usage])
			}
			return withSessions(ctx, c, func(all *daemon.Sessions) (answer, error) {
				r, err := c.running(ctx, all, in.ID)
				if err != nil {
					return answer{}, err
				}
				made, d, err := all.Extend(ctx, r.ID, by)
				if err != nil {
					return answer{}, unstarted(err)
				}
				r, err = all.Answer(ctx, made, d)
				return answer{doc: oneRun(r)}, inPart(oneRun(r), r.ID != "", err)
			})
		})
	add(s, operation{ID: "down-session", Method: post, Path: "/api/v1/sessions/{id}/down", Role: approval.RoleUser, Scoped: true, Summary: "Save a session's work, and end the session once that is confirmed: your own, or as an operator any", Schema: view.RunsSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				Discard bool `json:"discard,omitempty" doc:"Give up what is not saved."`
			}
		}) (answer, error) {
			return withSessions(ctx, c, func(all *daemon.Sessions) (answer, error) {
				r, err := c.running(ctx, all, in.ID)
				if err != nil {
					return answer{}, err
				}
				ended, err := all.Down(ctx, r.ID, in.Body.Discard)
				if err != nil {
					return answer{}, err
				}
				r, err = all.Answer(ctx, ended, nil)
				return answer{doc: oneRun(r)}, err
			})
		})
}
