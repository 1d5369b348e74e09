package estimate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// Terraform is what only the estimate of a plan of Terraform has.
type Terraform struct {
	// Monthly is what all that is there after the plan costs in 730 hours, Before what
	// it costs today, and Change the difference. Each counts only what has a price.
	Monthly money.Amount `json:"monthly_usd"`
	Before  money.Amount `json:"before_monthly_usd"`
	Change  money.Amount `json:"change_monthly_usd"`
	// Removed is what the plan destroys, also where it replaces it, with what it costs
	// in a month today; Saved is their total.
	Removed []Line       `json:"removed"`
	Saved   money.Amount `json:"saved_monthly_usd"`
	// NotPriced are the resources that the estimate passes over, by their types.
	NotPriced []NotPriced `json:"not_priced"`
	// Actions counts the resources by what the plan does with them: create, update,
	// replace, delete, forget, no-op.
	Actions map[string]int `json:"actions"`
}

// NotPriced is a type of resources that the estimate passes over.
type NotPriced struct {
	Type  string `json:"type"`
	Count int    `json:"count"`
}

// Bounds of a plan.
const (
	// MaxPlan is in bytes.
	MaxPlan = 256 << 20
	// maxPlanValues counts keys and values.
	maxPlanValues = 8_000_000
)

// tfPlan is the part of Terraform's JSON output format that is read.
type tfPlan struct {
	FormatVersion   string                           `json:"format_version"`
	Variables       map[string]*tfjson.PlanVariable  `json:"variables"`
	ResourceChanges []*tfjson.ResourceChange         `json:"resource_changes"`
	PlannedValues   json.RawMessage                  `json:"planned_values"`
	Deferred        []*tfjson.DeferredResourceChange `json:"deferred_changes"`
	Complete        *bool                            `json:"complete"`
	Errored         bool                             `json:"errored"`
	Config          *tfjson.Config                   `json:"configuration"`
}

// planner adds up a plan.
type planner struct {
	plan   *tfPlan
	book   *price.Book
	params Params
	e      *Estimate
	t      *Terraform
	// unpriced are prices that the plan needs and the book does not hold.
	unpriced []string
	// regionless says that a region was taken from the defaults.
	regionless bool
	// owned says that owner and purpose are those of a resource before.
	owned bool
	parts []hashed
}

// hashed is what an approval covers of one resource.
type hashed struct {
	Address, Type, Action string
	Lines                 [][4]string
	Unknown               []string
	// After is all that it will be, where what it costs is not known.
	After any `json:",omitempty"`
}

// FromTerraform estimates the plan that `terraform show -json PLAN` prints; name is the
// file's, for errors and titles. The lines are what the plan creates, replaces and
// updates, for a month of 730 hours; what it leaves as it is and what it destroys is in
// Terraform. A group's P95 is that of its largest size.
//
// It wraps [price.ErrUnpriced] where something that the plan creates or changes is of a
// kind that the book prices and has no price in its region.
func FromTerraform(r io.Reader, name string, book *price.Book, p Params) (*Estimate, error) {
	plan, err := readPlan(r, name)
	if err != nil {
		return nil, err
	}
	t := &Terraform{Removed: []Line{}, NotPriced: []NotPriced{}, Actions: map[string]int{}}
	c := &planner{plan: plan, book: book, params: p, t: t,
		e: &Estimate{Kind: KindTerraform, Name: name, Lines: []Line{}, Terraform: t, GPUs: map[string]int{}, Unknown: []string{}}}
	notPriced := map[string]int{}
	for _, change := range plan.ResourceChanges {
		if change == nil || change.Change == nil || change.Mode == tfjson.DataResourceMode || change.Change.Actions.Read() {
			continue
		}
		action := actionOf(change.Change.Actions)
		t.Actions[action]++
		if meters[change.Type] == nil {
			notPriced[change.Type]++
			c.passOver(change, action)
			continue
		}
		if err := c.add(change, action); err != nil {
			return nil, fmt.Errorf("estimate %s: %s: %w", name, change.Address, err)
		}
	}
	if len(c.unpriced) > 0 {
		return nil, notPricedError(name, c.unpriced)
	}
	for _, d := range plan.Deferred {
		if d != nil && d.ResourceChange != nil {
			c.e.Unknown = append(c.e.Unknown, fmt.Sprintf("%s: the plan defers it (%s)", d.ResourceChange.Address, d.Reason))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(notPriced)) {
		t.NotPriced = append(t.NotPriced, NotPriced{kind, notPriced[kind]})
	}
	if t.Change, err = t.Monthly.Add(-t.Before); err != nil {
		return nil, fmt.Errorf("estimate %s: %w", name, err)
	}
	c.finish()
	return c.e, nil
}

// passOver counts a resource whose type has no price. Only types that were reviewed cost
// nothing; every other is an unknown cost.
func (c *planner) passOver(change *tfjson.ResourceChange, action string) {
	if action == "no-op" {
		return
	}
	part := hashed{Address: change.Address, Type: change.Type, Action: action}
	if starts(action) && (!isFree(change.Type) || c.runsMachines(change)) {
		part.After = change.Change.After
		says := "what a resource of type %s costs is not known"
		if c.runsMachines(change) {
			says = "a resource of type %s runs machines, and what they cost is not estimated"
		}
		c.e.Unknown = append(c.e.Unknown, fmt.Sprintf("%s: "+says, change.Address, change.Type))
	}
	c.parts = append(c.parts, part)
}

// starts says whether something is there after an action that was not so before.
func starts(action string) bool {
	return action == "create" || action == "update" || action == "replace"
}

var (
	// machineTypes are resources that run machines whatever their attributes say.
	machineTypes = lazyregexp.New(`fleet|compute_environment|capacity_(block_)?reservation|node_(group|pool)|scale_set|instance_(group_manager|template|from)|` +
		`virtual_machine|compute_instance|tpu|notebook|workbench|emr_|dataproc|databricks_cluster|batch_pool`)
	// machineKeys are attributes that name the type of a machine.
	machineKeys = []string{"instance_type", "instance_types", "machine_type", "node_type", "node_type_id", "vm_size", "instance_class", "guest_accelerator", "accelerator_type"}
)

// runsMachines says whether a resource names a type of machines, or is of a kind that
// runs some.
func (c *planner) runsMachines(change *tfjson.ResourceChange) bool {
	var names func(v any) bool
	names = func(v any) bool {
		switch v := v.(type) {
		case string:
			_, known := c.book.Machine(strings.TrimPrefix(v, "ml."))
			return known
		case []any:
			return slices.ContainsFunc(v, names)
		case map[string]any:
			for key, value := range v {
				if names(value) || given(value) && slices.Contains(machineKeys, key) {
					return true
				}
			}
		}
		return false
	}
	return machineTypes.MatchString(change.Type) || names(change.Change.After) || names(change.Change.AfterUnknown)
}

// given says whether an attribute has a value.
func given(v any) bool {
	list, isList := v.([]any)
	return v != nil && v != "" && v != false && (!isList || len(list) > 0)
}

// notPricedError names what has no price.
func notPricedError(name string, what []string) error {
	const most = 3
	more := ""
	if len(what) > most {
		more = fmt.Sprintf(" and %d more", len(what)-most)
	}
	return fmt.Errorf("estimate %s: the price of %s%s is not known: run `curfew price update`, or choose other machines or regions: %w",
		name, strings.Join(what[:min(most, len(what))], ", "), more, price.ErrUnpriced)
}

// readPlan reads a plan; mistakes have their line and column.
func readPlan(r io.Reader, name string) (*tfPlan, error) {
	src, err := document.Read(name, r, MaxPlan)
	if err != nil {
		return nil, err
	}
	if err := document.CheckJSON(name, src, maxPlanValues); err != nil {
		return nil, err
	}
	plan := &tfPlan{}
	in := json.NewDecoder(bytes.NewReader(src))
	in.UseNumber()
	if err := in.Decode(plan); err != nil {
		at := in.InputOffset()
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		} else if errors.As(err, &kind) {
			at = kind.Offset
		}
		before := src[:max(0, min(at, int64(len(src))))]
		return nil, fmt.Errorf("%s:%d:%d: it is not the output of `terraform show -json PLAN`: %w", name,
			1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'), err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: something follows the plan; `terraform show -json PLAN` prints one document", name)
	}
	if err := (&tfjson.Plan{FormatVersion: plan.FormatVersion}).Validate(); err != nil {
		return nil, fmt.Errorf("%s:1:1: it is not the output of `terraform show -json PLAN`: %w", name, err)
	}
	if plan.ResourceChanges == nil && plan.PlannedValues == nil {
		return nil, fmt.Errorf("%s:1:1: it holds no planned changes: give `terraform show -json` the file of a plan, not of a state", name)
	}
	return plan, nil
}

// actionOf is what a plan does with a resource, in one word.
func actionOf(all tfjson.Actions) string {
	for _, word := range []tfjson.Action{tfjson.ActionCreate, tfjson.ActionDelete, tfjson.ActionUpdate, tfjson.ActionForget} {
		if slices.Contains(all, word) {
			if word == tfjson.ActionCreate && len(all) > 1 {
				return "replace"
			}
			return string(word)
		}
	}
	return string(tfjson.ActionNoop)
}

// add counts one resource before and after the plan.
func (c *planner) add(change *tfjson.ResourceChange, action string) error {
	touched := starts(action)
	part := hashed{Address: change.Address, Type: change.Type, Action: action}
	gone := action == "delete" || action == "replace" && slices.Contains(change.Change.Actions, tfjson.ActionDelete)
	after := change.Change.After
	if action == "forget" { // it is left alone, and goes on to cost
		after = change.Change.Before
	}
	if action != "create" {
		m := c.meter(change, change.Change.Before, nil)
		if err := m.read(); err != nil {
			return err
		}
		if err := m.total(&c.t.Before, nil, nil); err != nil {
			return err
		}
		if gone {
			c.t.Removed = append(c.t.Removed, m.lines...)
			if err := m.total(&c.t.Saved, nil, nil); err != nil {
				return err
			}
		}
		if gone || touched {
			for _, missing := range append(m.unpriced, m.unknown...) {
				c.e.Unknown = append(c.e.Unknown, "today, "+missing)
			}
		}
	}
	if action != "delete" {
		m := c.meter(change, after, change.Change.AfterUnknown)
		if err := m.read(); err != nil {
			return err
		}
		if err := m.total(&c.t.Monthly, nil, nil); err != nil {
			return err
		}
		if touched {
			if len(m.lines)+len(m.unknown)+len(m.unpriced) > 0 {
				c.own(m.at)
			}
			c.e.Lines = append(c.e.Lines, m.lines...)
			c.e.Unknown = append(c.e.Unknown, m.unknown...)
			c.unpriced = append(c.unpriced, m.unpriced...)
			c.e.Machines += m.machines
			for gpu, n := range m.gpus {
				c.e.GPUs[gpu] += n
			}
			if err := m.total(&c.e.P50, &c.e.P95, &c.e.Hourly); err != nil {
				return err
			}
			for _, l := range m.lines {
				part.Lines = append(part.Lines, [4]string{l.What, l.Quantity, l.QuantityP95, l.Unit})
			}
			if part.Unknown = m.unknown; len(m.unknown) > 0 {
				part.After = after
			}
		} else {
			for _, missing := range m.unpriced {
				c.e.Unknown = append(c.e.Unknown, "the price of "+missing)
			}
		}
	}
	if touched || action == "delete" {
		c.parts = append(c.parts, part)
	}
	return nil
}

// own counts the tags of a resource: owner and purpose are what all share that costs.
func (c *planner) own(at attributes) {
	r := &inventory.Resource{Tags: map[string]string{}}
	for _, key := range []string{"tags", "tags_all", "labels"} {
		tags, _ := at.values[key].(map[string]any)
		for name, v := range tags {
			if text, ok := v.(string); ok {
				r.Tags[name] = text
			}
		}
	}
	tags := inventory.DefaultTagMapping()
	if c.params.Tags != nil {
		tags = *c.params.Tags
	}
	_ = tags.Apply(r) // its only error is of an exemption
	if !c.owned {
		c.owned, c.e.Owner, c.e.Purpose = true, r.Owner, r.Purpose
		return
	}
	c.e.Owner = common(c.e.Owner, r.Owner)
	if c.e.Purpose != r.Purpose {
		c.e.Purpose = inventory.PurposeUnknown
	}
}

// hash is that of what the plan changes and of the quantities that it pays for. Prices
// are not in it: an approval has an amount of its own.
func (c *planner) hash() string {
	slices.SortStableFunc(c.parts, func(a, b hashed) int { return cmp.Compare(a.Address, b.Address) })
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(c.parts) // texts alone
	return hex.EncodeToString(h.Sum(nil))
}

// finish writes the sentences.
func (c *planner) finish() {
	e, t := c.e, c.t
	e.SpecHash, e.Open = c.hash(), e.Unknown
	e.Title = fmt.Sprintf("%s: %s a month for what it creates and changes, at most %s; all in all %s becomes %s", e.Name,
		e.P50.Dollars(), e.P95.Dollars(), t.Before.Dollars(), t.Monthly.Dollars())
	assumed, covered, changes := notes{}, notes{}, notes{}
	assumed.add("a month is %d hours, and everything runs through it", money.HoursPerMonth)
	assumed.add("machines run Linux without a paid license, on shared tenancy, at list prices without commitments")
	assumed.add("a group has its desired size, and at the worst its largest")
	if c.regionless {
		assumed.add("resources whose provider names no region are in %s", c.params.Defaults.Regions[0])
	}
	for _, n := range t.NotPriced {
		covered.add("not priced: %d × %s", n.Count, n.Type)
	}
	if len(e.Unknown) > 0 {
		covered.add("%s in no amount", plain.Count(len(e.Unknown), "cost"))
	}
	if c.plan.Errored {
		covered.add("Terraform could not finish the plan: there may be more changes")
	} else if c.plan.Complete != nil && !*c.plan.Complete {
		covered.add("the plan is not complete: there will be more changes after it")
	}
	if t.Saved > 0 {
		changes.add("what it destroys costs %s a month today", t.Saved.Dollars())
	}
	if e.P95 > e.P50 {
		changes.add("groups at their largest cost %s a month more", (e.P95 - e.P50).Dollars())
	}
	e.Assumptions, e.CoverageNotes, e.Changes = assumed, append([]string{}, covered...), append([]string{}, changes...)
}
