package aws

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// rehearsal collects mutating calls instead of making them.
type rehearsal struct{ calls []string }

// rehearsing is the context key of a rehearsal.
type rehearsing struct{}

// errRehearsed is the result of a collected call.
var errRehearsed = errors.New("it was rehearsed and not sent")

// rehearsed collects a call if its context is a rehearsal's, and reports whether it is.
func rehearsed(ctx context.Context, api string, input any) bool {
	r, ok := ctx.Value(rehearsing{}).(*rehearsal)
	if ok {
		r.calls = append(r.calls, strings.TrimSpace(api+" "+arguments(input)))
	}
	return ok
}

// arguments formats the set parameters of a call.
func arguments(input any) string {
	text, err := json.Marshal(input)
	var all any
	if err != nil || json.Unmarshal(text, &all) != nil {
		return ""
	}
	var given func(v any) any
	given = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if v[k] = given(x); v[k] == nil || v[k] == "" {
					delete(v, k)
				}
			}
			if len(v) == 0 {
				return nil
			}
		case []any:
			for i, x := range v {
				v[i] = given(x)
			}
		}
		return v
	}
	text, err = json.Marshal(given(all))
	if err != nil || string(text) == "null" {
		return ""
	}
	return string(text)
}

// sent returns the error of a call; nil if it was only rehearsed.
func sent(err error) error {
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

// Rehearse implements [action.Cloud]: it runs Undo with all reads and checks, up to each mutating
// call, which is reported with its arguments instead of sent.
func (a *Actions) Rehearse(ctx context.Context, t action.Task) (string, error) {
	s, d, err := a.handler(ctx, t)
	if err != nil {
		return "", err
	}
	if d.undo == nil {
		return "", refusal("irrevocable", "%s", d.lost)
	}
	r := &rehearsal{}
	err = d.undo(context.WithValue(ctx, rehearsing{}, r), s, t)
	if len(r.calls) > 0 {
		return strings.Join(r.calls, ", then "), nil
	}
	if errors.Is(err, inventory.ErrNotFound) {
		err = refusal("gone", "%s %s no longer exists", t.Ref.Kind, t.Ref.ID)
	}
	return "", err
}
