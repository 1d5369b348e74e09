// Package custom reads and sets the sizes of serving fleets by a command or a webhook of their owner.
package custom

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Cloud and Account are those of every fleet.
const (
	Cloud   = "custom"
	Account = "own"
)

const (
	// DefaultTimeout bounds one command or call.
	DefaultTimeout = time.Minute
	// maxAnswer bounds what a command prints or a webhook answers.
	maxAnswer = 1 << 20
	// maxServers bounds the servers of an answer.
	maxServers = fleet.MaxReplicas
	stepSet    = "set-size"
)

// Options are a fleet and how its size is set.
type Options struct {
	Name string
	// Command is run with the arguments "size", or "set N" and the servers that end. In its place URL is
	// asked by GET and set by PUT, with Key as a bearer token.
	Command []string
	URL     string
	Key     string
	// Drains is set if the command or webhook waits for the requests in flight of servers that it chooses.
	Drains bool
	// Timeout bounds one command or call; 0 is DefaultTimeout.
	Timeout time.Duration
	Tags    map[string]string
	Mapping inventory.TagMapping
	Client  interface {
		Do(req *http.Request) (*http.Response, error)
	}
	// Output gets what commands print that set a size; nil drops it. It is a file, which servers that they
	// start may go on writing to.
	Output *os.File
}

// Fleet is a fleet whose size its owner's command sets. It is safe for concurrent use.
type Fleet struct{ o Options }

var (
	_ action.Cloud      = (*Fleet)(nil)
	_ action.FleetCloud = (*Fleet)(nil)
)

// New returns a fleet. It makes no call.
func New(o Options) *Fleet {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return &Fleet{o: o}
}

// Ref identifies the fleet.
func (f *Fleet) Ref() inventory.Ref {
	return inventory.Ref{Cloud: Cloud, Account: Account, Kind: inventory.KindEndpoint, ID: f.o.Name}
}

// Size is the answer of a command or webhook: the size that the fleet should have by now.
type Size struct {
	Replicas *int `json:"replicas"`
	// Servers, where there are any, are all that run or start; the ones that end are chosen among them.
	Servers []Server `json:"servers"`
	// OtherWriter names what else sets the size.
	OtherWriter string `json:"other_writer"`
}

// Server is a replica that may be ended by its id.
type Server struct {
	ID string `json:"id"`
	// Hosts are its names and addresses in metrics, with or without a port.
	Hosts   []string `json:"hosts"`
	Serving bool     `json:"serving"`
	// Protected may not end.
	Protected  bool      `json:"protected"`
	LaunchedAt time.Time `json:"launched_at"`
}

// size asks for the size.
func (f *Fleet) size(ctx context.Context) (Size, error) {
	out, err := f.call(ctx, "size", http.MethodGet, nil)
	if err != nil {
		return Size{}, fmt.Errorf("read the size of fleet %s: %w", f.o.Name, err)
	}
	var s Size
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return Size{}, fmt.Errorf(`read the size of fleet %s: the answer is not {"replicas": 2}: %w`, f.o.Name, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Size{}, fmt.Errorf("read the size of fleet %s: more follows after the answer", f.o.Name)
	}
	return s, f.check(s)
}

// check returns an error for an answer that no decision may rest on.
func (f *Fleet) check(s Size) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("read the size of fleet %s: "+format, append([]any{f.o.Name}, args...)...)
	}
	if s.Replicas == nil || *s.Replicas < 0 || *s.Replicas > fleet.MaxReplicas {
		return wrong(`"replicas" is missing, or not from 0 to %d`, fleet.MaxReplicas)
	}
	if len(s.Servers) > maxServers {
		return wrong("it has more than %d servers", maxServers)
	}
	seen := map[string]bool{}
	for _, one := range s.Servers {
		if one.ID == "" || one.ID[0] == '-' || seen[one.ID] {
			return wrong("the server %q has no id of its own, or one that begins with -", one.ID)
		}
		seen[one.ID] = true
	}
	return nil
}

// Fleet implements [action.FleetCloud].
func (f *Fleet) Fleet(ctx context.Context, ref inventory.Ref) (action.Fleet, error) {
	if ref != f.Ref() {
		return action.Fleet{}, fmt.Errorf("read fleet %s: %w", ref, inventory.ErrNotFound)
	}
	s, err := f.size(ctx)
	if err != nil {
		return action.Fleet{}, err
	}
	r := &inventory.Resource{
		ID: ref.ID, Name: ref.ID, Kind: ref.Kind, Cloud: ref.Cloud, Account: ref.Account, Incarnation: Cloud,
		State: inventory.StateAvailable, Tags: map[string]string{}, Detail: &inventory.Endpoint{},
	}
	for k, v := range f.o.Tags {
		r.Tags[k] = v
	}
	if err := f.o.Mapping.Apply(r); err != nil {
		return action.Fleet{}, fmt.Errorf("read fleet %s: %w", ref.ID, err)
	}
	out := action.Fleet{Resource: r, Desired: *s.Replicas, Max: fleet.MaxReplicas, Drains: f.o.Drains}
	for _, one := range s.Servers {
		out.Replicas = append(out.Replicas, action.Replica{
			ID: one.ID, Hosts: one.Hosts, Serving: one.Serving, Protected: one.Protected, LaunchedAt: one.LaunchedAt,
		})
	}
	return out, nil
}

// change are the parameters of a step.
type change struct {
	FormerSize int      `json:"from"`
	Size       int      `json:"to"`
	End        []string `json:"end,omitempty"`
}

func refusal(rule, format string, args ...any) error {
	return &action.Refusal{Rule: rule, Why: fmt.Sprintf(format, args...)}
}

// Plan implements [action.Cloud].
func (f *Fleet) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	if r.Ref() != f.Ref() || do.Verb != policy.Scale || !do.IsFleet() {
		return nil, refusal("no-such-verb", "fleet %s is only scaled, by the policy that names it", f.o.Name)
	}
	s, err := f.size(ctx)
	if err != nil {
		return nil, err
	}
	want := change{FormerSize: *s.Replicas, Size: do.To, End: do.Members}
	switch {
	case s.OtherWriter != "":
		return nil, refusal("other-writer", "%s sets the size of fleet %s as well: remove it, so that one does",
			s.OtherWriter, f.o.Name)
	case want.Size == want.FormerSize:
		return nil, refusal("nothing-to-do", "fleet %s wants %d replicas already", f.o.Name, want.FormerSize)
	case want.Size < 0 || want.Size > fleet.MaxReplicas:
		return nil, refusal("bounds", "fleet %s cannot have %d replicas", f.o.Name, want.Size)
	case len(want.End) > 0 && len(want.End) != want.FormerSize-want.Size,
		want.Size < want.FormerSize && len(want.End) == 0 && len(s.Servers) > 0 && !f.o.Drains:
		return nil, refusal("not-drained", "of the %d replicas that would end, %d are drained",
			max(0, want.FormerSize-want.Size), len(want.End))
	}
	params, err := json.Marshal(want)
	if err != nil {
		return nil, err
	}
	undo, err := json.Marshal(change{FormerSize: want.Size, Size: want.FormerSize})
	return []action.Step{{Name: stepSet, Params: string(params), Undo: string(undo)}}, err
}

func parse(t action.Task) (c change, err error) {
	if err = json.Unmarshal([]byte(t.Step.Params), &c); err != nil {
		err = fmt.Errorf("read step %s: %w", t.Step.Name, err)
	}
	return c, err
}

// done reports whether a change was made.
func (c change) done(s Size) bool {
	for _, one := range s.Servers {
		if slices.Contains(c.End, one.ID) {
			return false
		}
	}
	return *s.Replicas == c.Size
}

// Do implements [action.Cloud]. A size that something else has set meanwhile is left as it is.
func (f *Fleet) Do(ctx context.Context, t action.Task) (string, error) {
	c, err := parse(t)
	if err != nil {
		return "", err
	}
	s, err := f.size(ctx)
	switch {
	case err != nil:
		return "", err
	case c.done(s):
		return "", nil
	case s.OtherWriter != "":
		return "", refusal("other-writer", "%s sets the size of fleet %s as well", s.OtherWriter, f.o.Name)
	case *s.Replicas != c.FormerSize && *s.Replicas != c.Size:
		return "", refusal("changed", "fleet %s wants %d replicas now: another size than when this was planned",
			f.o.Name, *s.Replicas)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	args := append([]string{strconv.Itoa(c.Size)}, c.End...)
	if _, err = f.call(ctx, "set", http.MethodPut, body, args...); err != nil {
		err = fmt.Errorf("set the size of fleet %s to %d: %w", f.o.Name, c.Size, err)
	}
	return "", err
}

// Look implements [action.Cloud].
func (f *Fleet) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	c, err := parse(t)
	if err != nil {
		return action.NotDone, "", err
	}
	s, err := f.size(ctx)
	switch {
	case err != nil:
		return action.NotDone, "", err
	case c.done(s):
		return action.Complete, "", nil
	case *s.Replicas == c.Size:
		return action.InProgress, "", nil // its servers are ending
	}
	return action.NotDone, "", nil
}

// Undo implements [action.Cloud].
func (f *Fleet) Undo(context.Context, action.Task) error {
	return refusal("irrevocable", "the next readings of demand set the size of fleet %s: change min or max of its "+
		"policy, or freeze", f.o.Name)
}

// Rehearse implements [action.Cloud].
func (f *Fleet) Rehearse(ctx context.Context, t action.Task) (string, error) {
	return "", f.Undo(ctx, t)
}

// call runs the command, or asks the webhook.
func (f *Fleet) call(ctx context.Context, verb, method string, body []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	if f.o.URL != "" {
		return f.ask(ctx, method, body)
	}
	c := exec.CommandContext(ctx, f.o.Command[0], slices.Concat(f.o.Command[1:], []string{verb}, args)...)
	var out, problems limited
	switch {
	case method == http.MethodGet:
		c.Stdout, c.Stderr = &out, &problems
		c.WaitDelay = time.Second // for what it leaves behind
	case f.o.Output != nil:
		c.Stdout, c.Stderr = f.o.Output, f.o.Output
	}
	err := c.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s %s did not end in %s", f.o.Command[0], verb, f.o.Timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		if text := bytes.TrimSpace(problems.Bytes()); len(text) > 0 {
			err = fmt.Errorf("%w: %.300s", err, text)
		}
		return nil, fmt.Errorf("%s %s: %w", f.o.Command[0], verb, err)
	case out.over:
		return nil, fmt.Errorf("%s %s printed more than %d bytes", f.o.Command[0], verb, maxAnswer)
	}
	return out.Bytes(), nil
}

// ask calls the webhook.
func (f *Fleet) ask(ctx context.Context, method string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if f.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+f.o.Key)
	}
	resp, err := f.o.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("%s answered %s: %.300s", req.URL.Host, resp.Status, bytes.TrimSpace(out))
	case len(out) > maxAnswer:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return out, nil
}

// limited keeps the first maxAnswer bytes.
type limited struct {
	bytes.Buffer
	over bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	kept := p[:min(len(p), maxAnswer-l.Len())]
	l.over = l.over || len(kept) < len(p)
	_, _ = l.Buffer.Write(kept) // a buffer takes all
	return len(p), nil
}
