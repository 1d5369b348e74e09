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

// Terraform has the fields that only the estimate of a Terraform plan has.
type Terraform struct {
	// Monthly is the cost of all resources after the plan in 730 hours, Before their cost today,
	// and Change the difference. Each counts only priced resources.
	Monthly money.Amount `json:"monthly_usd"`
	Before  money.Amount `json:"before_monthly_usd"`
	Change  money.Amount `json:"change_monthly_usd"`
	// Removed are the resources that the plan destroys or replaces, with their monthly cost today;
	// Saved is their total.
	Removed []Line       `json:"removed"`
	Saved   money.Amount `json:"saved_monthly_usd"`
	// NotPriced are the resources that the estimate passes over, by their types.
	NotPriced []NotPriced `json:"not_priced"`
	// Actions counts the resources by planned action: create, update, replace, delete, forget,
	// no-op.
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
	Invocations     []*tfjson.ActionInvocation       `json:"action_invocations"`
	PriorState      priorState                       `json:"prior_state"`
}

// priorState is the part of the state before the plan that is read.
type priorState struct {
	Values struct {
		Root stateModule `json:"root_module"`
	} `json:"values"`
}

type stateModule struct {
	Resources []stateResource `json:"resources"`
	Children  []stateModule   `json:"child_modules"`
}

type stateResource struct {
	Address string          `json:"address"`
	Type    string          `json:"type"`
	Values  json.RawMessage `json:"values"`
}

// resources are those of all modules.
func (s priorState) resources() (all []stateResource) {
	modules := []stateModule{s.Values.Root}
	for len(modules) > 0 {
		m := modules[0]
		all, modules = append(all, m.Resources...), append(modules[1:], m.Children...)
	}
	return all
}

// readObject reads an object as the rest of the plan is read.
func readObject(src json.RawMessage) (map[string]any, bool) {
	in := json.NewDecoder(bytes.NewReader(src))
	in.UseNumber()
	var out map[string]any
	return out, in.Decode(&out) == nil && out != nil
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
	// regionless is true if a region was taken from the defaults.
	regionless bool
	// owned is true if owner and purpose are those of a resource before.
	owned bool
	parts []hashed
	// open lists the unknowns that make the gate ask.
	open []string

	templates []*template
	// reservations are those before and after the plan, subnets the zones of subnets by their ids.
	reservations [2][]*reservation
	subnets      map[string]string
	// blocks is true if there are machines of a capacity block, reserved if some run in
	// reservations of the plan; fallen is the minimum monthly saving of updates.
	blocks   bool
	credits  bool // an update costs more than today
	reserved bool
	fallen   money.Amount
}

// hashed is the part of one resource that an approval covers.
type hashed struct {
	Address, Type, Action string
	Lines                 [][4]string
	Unknown               []string
	// After is its complete planned state, where its cost is unknown, and Launches the contents of
	// the launch templates that it may use then.
	After    any      `json:",omitempty"`
	Launches []string `json:",omitempty"`
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
		e: &Estimate{
			Kind: KindTerraform, Name: name, Lines: []Line{}, Terraform: t,
			GPUs: map[string]int{}, Unknown: []string{},
		}, subnets: map[string]string{}}
	c.indexTemplates()
	c.indexReservations()
	notPriced := map[string]int{}
	for _, change := range plan.ResourceChanges {
		if change == nil || change.Change == nil || change.Mode == tfjson.DataResourceMode ||
			change.Change.Actions.Read() {
			continue
		}
		action := actionOf(change.Change.Actions)
		t.Actions[action]++
		if !isAction(change.Change.Actions) {
			c.ask("%s: what the plan does with it (%s) is not known to curfew", change.Address,
				strings.Join(actionWords(change.Change.Actions), ", "))
		}
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
		if d != nil && d.ResourceChange != nil && d.ResourceChange.Mode != tfjson.DataResourceMode {
			c.ask("%s: the plan defers it (%s)", d.ResourceChange.Address, d.Reason)
		}
	}
	for _, a := range plan.Invocations {
		if a != nil {
			c.ask("%s: what an action of type %s starts is not known", a.Address, a.Type)
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
	if action == actionNoOp {
		return
	}
	part := hashed{Address: change.Address, Type: change.Type, Action: action}
	if starts(action) && (action != actionUpdate || changesCost(change.Change)) &&
		(!isFree(change.Type) || c.runsMachines(change)) {
		part.After = change.Change.After
		says := "what a resource of type %s costs is not known"
		if c.runsMachines(change) {
			says = "a resource of type %s runs machines, and what they cost is not estimated"
		}
		c.ask("%s: "+says, change.Address, change.Type)
	}
	c.parts = append(c.parts, part)
}

// starts reports whether something is there after an action that was not so before.
func starts(action string) bool {
	return action == actionCreate || action == actionUpdate || action == actionReplace
}

// ask notes an unknown fact and makes the gate ask.
func (c *planner) ask(format string, a ...any) {
	c.open = append(c.open, fmt.Sprintf(format, a...))
	c.e.Unknown = append(c.e.Unknown, c.open[len(c.open)-1])
}

// What a plan does with a resource.
const (
	actionCreate  = "create"
	actionUpdate  = "update"
	actionReplace = "replace"
	actionDelete  = "delete"
	actionForget  = "forget"
	actionNoOp    = "no-op"
)

var (
	// machineTypes are resources that run machines whatever their attributes say.
	machineTypes = lazyregexp.New(
		`fleet|compute_environment|capacity_(block_)?reservation|node_(group|pool)|scale_set|instance_(group_manager|template|from)|` +
			`virtual_machine|compute_instance|tpu|notebook|workbench|emr_|dataproc|databricks_cluster|batch_pool`)
	// machineKeys are attributes that name the type of a machine.
	machineKeys = []string{
		"instance_type", "instance_types", "machine_type", "node_type", "node_type_id", "vm_size", "instance_class",
		"guest_accelerator", "accelerator_type",
	}
)

// runsMachines reports whether a resource names a type of machines, or is of a kind that
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

// given reports whether an attribute has a value.
func given(v any) bool {
	list, isList := v.([]any)
	return v != nil && v != "" && v != false && (!isList || len(list) > 0)
}

// notPricedError names the unpriced resources.
func notPricedError(name string, what []string) error {
	const most = 3
	more := ""
	if len(what) > most {
		more = fmt.Sprintf(" and %d more", len(what)-most)
	}
	return fmt.Errorf("estimate %s: the price of %s%s is not known: run `curfew price update`, or choose other "+
		"machines or regions: %w",
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
		return nil, fmt.Errorf(
			"%s:1:1: it holds no planned changes: give `terraform show -json` the file of a plan, not of a state",
			name)
	}
	return plan, nil
}

// actionOf returns the plan's action on a resource in one word. An action that is unknown counts as
// one that creates it.
func actionOf(all tfjson.Actions) string {
	if !isAction(all) {
		return actionCreate
	}
	for _, word := range []tfjson.Action{
		tfjson.ActionCreate, tfjson.ActionDelete, tfjson.ActionUpdate, tfjson.ActionForget,
	} {
		if slices.Contains(all, word) {
			if word == tfjson.ActionCreate && len(all) > 1 {
				return actionReplace
			}
			return string(word)
		}
	}
	return actionNoOp
}

// isAction reports whether all actions are of the plan format of Terraform that is known.
func isAction(all tfjson.Actions) bool {
	known := []tfjson.Action{
		tfjson.ActionNoop, tfjson.ActionCreate, tfjson.ActionRead, tfjson.ActionUpdate, tfjson.ActionDelete,
		tfjson.ActionForget,
	}
	return len(all) > 0 && !slices.ContainsFunc(all, func(a tfjson.Action) bool { return !slices.Contains(known, a) })
}

func actionWords(all tfjson.Actions) (words []string) {
	for _, a := range all {
		words = append(words, string(a))
	}
	return words
}

// add counts one resource before and after the plan. What the plan creates or replaces is charged in
// full, because a replacement is another machine, under a hold of its own; what
// it updates is charged for what it costs more than today. That goes for machines too whose launch
// template the plan changes, while it leaves their group as it is.
func (c *planner) add(change *tfjson.ResourceChange, action string) error {
	var was, is *meter
	if action != actionCreate {
		was = c.meter(change, true)
		if err := was.read(); err != nil {
			return err
		}
		if err := was.total(&c.t.Before, nil, nil); err != nil {
			return err
		}
	}
	if action != actionDelete {
		is = c.meter(change, action == actionForget) // a forgotten resource is left alone, and still costs
		if err := is.read(); err != nil {
			return err
		}
		if err := is.total(&c.t.Monthly, nil, nil); err != nil {
			return err
		}
	}
	if action == actionDelete || action == actionReplace &&
		slices.Contains(change.Change.Actions, tfjson.ActionDelete) {
		c.t.Removed = append(c.t.Removed, was.lines...)
		if err := was.total(&c.t.Saved, nil, nil); err != nil {
			return err
		}
	}
	part := hashed{Address: change.Address, Type: change.Type, Action: action}
	switch {
	case action == actionCreate, action == actionReplace:
		return c.charge(part, nil, is, was)
	case action == actionUpdate && changesCost(change.Change), (action == actionUpdate || action == actionNoOp) &&
		!slices.Equal(was.used, is.used):
		return c.charge(part, was, is, was)
	case action == actionDelete:
		c.today(was)
		c.parts = append(c.parts, part)
	case action == actionUpdate:
		c.parts = append(c.parts, part)
	default:
		for _, missing := range is.unpriced {
			c.e.Unknown = append(c.e.Unknown, "the price of "+missing)
		}
	}
	return nil
}

// today notes an unknown cost before the plan. It raises nothing, so that the gate does not ask
// about it.
func (c *planner) today(was *meter) {
	if was == nil {
		return
	}
	for _, missing := range append(was.unpriced, was.unknown...) {
		c.e.Unknown = append(c.e.Unknown, "today, "+missing)
	}
}

// charge adds what a resource costs to the estimate, less what it costs today where
// credit is not nil.
func (c *planner) charge(part hashed, credit, is, was *meter) error {
	c.today(was)
	if len(is.lines)+len(is.unknown)+len(is.unpriced) > 0 {
		c.own(is.at)
	}
	for _, l := range is.lines {
		part.Lines = append(part.Lines, [4]string{l.What, l.Quantity, l.QuantityP95, l.Unit})
	}
	if part.Unknown = is.unknown; len(is.unknown) > 0 {
		part.After, part.Launches = is.at.values, is.used
	}
	c.parts = append(c.parts, part)
	for _, u := range is.unknown {
		c.ask("%s", u)
	}
	c.unpriced = append(c.unpriced, is.unpriced...)
	machines, gpus := is.machines, is.gpus
	if credit != nil && credit.isWorstCase {
		credit = nil // it costs less, maybe
	}
	if credit != nil {
		machines = max(0, machines-credit.machines)
		for gpu, n := range credit.gpus {
			gpus[gpu] = max(0, gpus[gpu]-n)
		}
		if err := c.credit(is, credit); err != nil {
			return err
		}
	}
	c.e.Machines += machines
	for gpu, n := range gpus {
		if n > 0 {
			c.e.GPUs[gpu] += n
		}
	}
	c.e.Lines = append(c.e.Lines, is.lines...)
	return is.total(&c.e.P50, &c.e.P95, &c.e.Hourly)
}

// credit adds a line for what a resource costs today, so that its lines add up to what it
// costs more. What costs less is not credited to other resources.
func (c *planner) credit(is, was *meter) error {
	before, after := slices.Clone(was.lines), is.lines[:0:0]
	var hourly []money.Amount
	for i, l := range is.lines {
		if at := slices.Index(before, l); at >= 0 { // it stays as it is
			before = slices.Delete(before, at, at+1)
			continue
		}
		after, hourly = append(after, l), append(hourly, is.hourly[i])
	}
	var a, b [3]money.Amount
	if err := is.total(&a[0], &a[1], &a[2]); err != nil {
		return err
	}
	if err := was.total(&b[0], &b[1], &b[2]); err != nil {
		return err
	}
	is.lines, is.hourly = after, hourly
	more50 := max(0, a[0]-b[0])
	more95 := max(more50, a[1]-b[1])
	if b[1] > a[1] {
		var err error
		if c.fallen, err = c.fallen.Add(b[1] - a[1]); err != nil {
			return err
		}
	}
	if more95 == 0 {
		is.lines, is.hourly = nil, nil
		return nil
	}
	var rest [3]money.Amount
	if err := is.total(&rest[0], &rest[1], &rest[2]); err != nil {
		return err
	}
	c.credits = true
	less := Line{
		What: "less what it costs today", Resource: is.address, Quantity: "-1", QuantityP95: "-1", Unit: "month",
		P50: more50 - rest[0], P95: more95 - rest[1], Source: "its lines before the plan"}
	if less.P50 == 0 && less.P95 == 0 {
		return nil
	}
	rate, err := (-less.P95).Rate()
	if err != nil {
		return err
	}
	less.UnitPrice = rate
	for _, l := range was.lines {
		less.AsOf = max(less.AsOf, l.AsOf)
	}
	is.lines, is.hourly = append(is.lines, less), append(is.hourly, max(0, a[2]-b[2])-rest[2])
	return nil
}

// own counts the tags of a resource: all that costs shares owner and purpose.
func (c *planner) own(at attributes) {
	r := &inventory.Resource{Tags: map[string]string{}}
	for _, tag := range at.block("tag") { // of a group
		key, _ := tag.text("key")
		r.Tags[key], _ = tag.text("value")
	}
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
	if c.plan.Errored {
		c.ask("Terraform could not finish the plan: there may be more changes")
	}
	e.SpecHash, e.Open = c.hash(), c.open
	e.Title = fmt.Sprintf("%s: %s a month for what it creates and changes, at most %s; all in all %s becomes %s",
		e.Name,
		e.P50.Dollars(), e.P95.Dollars(), t.Before.Dollars(), t.Monthly.Dollars())
	assumed, covered, changes := notes{}, notes{}, notes{}
	assumed.add("a month is %d hours, and everything runs through it", money.HoursPerMonth)
	assumed.add("machines run Linux without a paid license, on shared tenancy, at list prices without commitments")
	assumed.add("a group has its desired size, and at the worst its largest")
	if c.credits {
		assumed.add("updated resources are charged for their added cost")
	}
	if c.blocks {
		assumed.add("machines of a capacity block are paid with the block, which has no hours")
	}
	if c.reserved {
		assumed.add("machines in a capacity reservation are charged once, with the reservation")
	}
	if c.regionless {
		assumed.add("resources whose provider names no region are in %s", c.params.Defaults.Regions[0])
	}
	for _, n := range t.NotPriced {
		covered.add("not priced: %d × %s", n.Count, n.Type)
	}
	if len(e.Unknown) > 0 {
		covered.add("%s in no amount", plain.Count(len(e.Unknown), "cost"))
	}
	if c.plan.Complete != nil && !*c.plan.Complete {
		covered.add("the plan is not complete: there will be more changes after it")
	}
	if t.Saved > 0 {
		changes.add("destroyed resources cost %s a month today", t.Saved.Dollars())
	}
	if c.fallen > 0 {
		changes.add("reduced resources cost %s a month less, which is not offset against other costs", c.fallen.Dollars())
	}
	if e.P95 > e.P50 {
		changes.add("groups at their largest cost %s a month more", (e.P95 - e.P50).Dollars())
	}
	e.Assumptions, e.CoverageNotes, e.Changes = assumed, append([]string{}, covered...), append([]string{}, changes...)
}
