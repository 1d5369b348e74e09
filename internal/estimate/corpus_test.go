package estimate

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// The corpus draws plans whose machines are known: what the launch templates hold, which of them
// a group gets and in what version. A plan does not show all of that. The gate's machines,
// GPUs and dollars are those of a naive count, or it asks.

// offer is a type of machines with its monthly cost, in cents, and its GPUs.
type offer struct {
	kind        string
	demand      int64
	spot        int64
	accelerator string
	gpus        int
}

var offers = []offer{
	{"g5.xlarge", 730_00, 292_00, "A10G", 1},
	{"p4d.24xlarge", 16_060_00, 5_840_00, "A100-40GB", 8},
}

const diskCents = 3_65 // 50 GiB of gp3

// drawnTemplate is a launch template with its versions before and after the plan.
type drawnTemplate struct {
	address, id, name string
	action            string
	before, after     drawnContent
	followDefault     bool
}

type drawnContent struct {
	offer  offer
	market string
	shared bool
}

func (c drawnContent) cents() int64 {
	if c.market == marketSpot {
		return c.offer.spot
	}
	return c.offer.demand
}

func (c drawnContent) values(d *drawnTemplate, version int) object {
	out := templateOf(c.offer.kind, "name", d.name, "latest_version", version, "default_version", version)
	if d.action != "create" {
		out["id"] = d.id
	}
	if c.market != "" {
		out["instance_market_options"] = []any{object{"market_type": c.market}}
	}
	if !c.shared {
		out["placement"] = []any{object{"tenancy": "dedicated"}}
	}
	return out
}

func drawContent(t *rapid.T) drawnContent {
	return drawnContent{
		rapid.SampledFrom(offers).Draw(t, "type"), rapid.SampledFrom([]string{"", "", marketSpot}).Draw(t, "market"),
		rapid.IntRange(0, 9).Draw(t, "tenancy") > 0}
}

func drawTemplate(t *rapid.T, i int) (*drawnTemplate, planned) {
	d := &drawnTemplate{
		address: fmt.Sprintf("aws_launch_template.t%d", i), id: fmt.Sprintf("lt-%d", i), name: fmt.Sprintf("t%d", i),
		action: rapid.SampledFrom([]string{"create", "no-op", "update"}).Draw(t, "template")}
	d.before, d.after = drawContent(t), drawContent(t)
	p := planned{address: d.address, actions: []string{d.action}}
	switch d.action {
	case "create":
		d.before = drawnContent{}
		p.after, p.unknown = d.after.values(d, 1), object{"id": true}
	case "no-op":
		d.after = d.before
		p.before, p.after = d.before.values(d, 5), d.before.values(d, 5)
	default:
		after := d.after.values(d, 5)
		if d.followDefault = rapid.Bool().Draw(t, "update_default_version"); d.followDefault {
			after["update_default_version"] = true
		}
		delete(after, "latest_version")
		p.before, p.after, p.unknown = d.before.values(d, 5), after, object{"latest_version": true}
	}
	return d, p
}

// wanted returns the content that a group uses of a template before and after the plan.
func (d *drawnTemplate) wanted(version string) (before, after drawnContent) {
	changed := d.after
	if d.action == "update" && (version == "5" || isDefault(version) && !d.followDefault) {
		changed = d.before
	}
	return d.before, changed
}

// drawnUse is a group of machines, with how many machines run and how many disks there are.
type drawnUse struct {
	plan        planned
	was, is     bool // it is there before, after
	size, grown [2]size
	before      drawnContent
	after       drawnContent
}

// drawUse draws a group or a node group of one of the templates.
func drawUse(t *rapid.T, i int, templates []*drawnTemplate) drawnUse {
	u := drawnUse{}
	d := rapid.SampledFrom(templates).Draw(t, "template of the group")
	action := "create"
	if d.action != "create" {
		action = rapid.SampledFrom([]string{"create", "update", "no-op", "delete"}).Draw(t, "action")
	}
	u.was, u.is = action != "create", action != "delete"
	version := rapid.SampledFrom([]string{"$Latest", "5", "$Default"}).Draw(t, "version")
	if d.action == "create" {
		version = rapid.SampledFrom([]string{"$Latest", "1", "$Default"}).Draw(t, "version of a new one")
	}
	u.before, u.after = d.wanted(version)
	nodes := rapid.Bool().Draw(t, "node group")
	at := func(label string) (object, size, size) {
		usual := rapid.Int64Range(0, 6).Draw(t, "desired "+label)
		most := usual + rapid.Int64Range(0, 6).Draw(t, "room "+label)
		if nodes {
			return object{
				"scaling_config": []any{object{"desired_size": usual, "max_size": most, "min_size": 0}},
			}, size{usual, most}, size{usual, most}
		}
		out := object{"desired_capacity": usual, "max_size": most, "min_size": 0}
		running := size{usual, most}
		kept := running
		if rapid.IntRange(0, 3).Draw(t, "warm pool "+label) == 0 {
			prepared := rapid.Int64Range(-1, 10).Draw(t, "prepared "+label)
			state := rapid.SampledFrom([]string{"Stopped", "Running"}).Draw(t, "state "+label)
			out["warm_pool"] = []any{
				object{"max_group_prepared_capacity": prepared, "pool_state": state, "min_size": 0},
			}
			limit := most
			if prepared >= 0 {
				limit = prepared
			}
			kept = size{max(usual, limit), max(most, limit)}
			if state == "Running" {
				running = kept
			}
		}
		return out, running, kept
	}
	before, running, kept := at("before")
	u.size[0], u.grown[0] = running, kept
	after := before
	u.size[1], u.grown[1] = running, kept
	if action == "update" {
		after, u.size[1], u.grown[1] = at("after")
	}
	reference := object{"version": version}
	config := object{"version": object{"constant_value": version}}
	var unknown object
	how := rapid.SampledFrom([]string{"name", "id", "reference", "condition", "local"}).Draw(t, "how")
	switch {
	case how == "name" && action != "no-op":
		reference["name"], config["name"] = d.name, object{"constant_value": d.name}
	case d.action != "create":
		reference["id"], config["id"] = d.id, refs("local.id")
	default:
		unknown = object{"launch_template": []any{object{"id": true, "name": true}}}
		switch how {
		case "condition":
			other := rapid.SampledFrom(templates).Draw(t, "the other template")
			config["id"] = refs("var.x", other.address+".id", other.address, d.address+".id", d.address)
		case "local":
			config["id"] = refs("local.id")
		default:
			config["id"] = refs(d.address+".id", d.address)
		}
	}
	address := fmt.Sprintf("aws_autoscaling_group.g%d", i)
	if nodes {
		address = fmt.Sprintf("aws_eks_node_group.g%d", i)
	}
	u.plan = planned{
		address: address, actions: []string{
			action,
		}, unknown: unknown, config: object{"launch_template": []any{config}},
	}
	with := func(of object) object {
		out := object{"launch_template": []any{reference}}
		for k, v := range of {
			out[k] = v
		}
		return out
	}
	if u.was {
		u.plan.before = with(before)
	}
	if u.is {
		u.plan.after = with(after)
		if rapid.IntRange(0, 19).Draw(t, "an attribute of tomorrow") == 0 && action != "no-op" {
			u.plan.after.(object)["machines_of_tomorrow"] = 7
		}
	}
	return u
}

// naive is the added cost of a plan, in cents at most, with its machines and GPUs.
type naive struct {
	cents    int64
	machines int64
	gpus     map[string]int64
}

func (n *naive) add(u drawnUse) {
	if !u.is {
		return
	}
	cost := func(c drawnContent, running, disks int64) int64 {
		if !c.shared { // dedicated machines have no price, and unpriced machines get no credit
			running = 0
		}
		return c.cents()*running + diskCents*disks
	}
	usual, most := cost(u.after, u.size[1].usual, u.grown[1].usual), cost(u.after, u.size[1].most, u.grown[1].most)
	machines, gpus := u.size[1].most, map[string]int64{
		u.after.offer.accelerator: u.size[1].most * int64(u.after.offer.gpus),
	}
	if u.was {
		usual -= cost(u.before, u.size[0].usual, u.grown[0].usual)
		most -= cost(u.before, u.size[0].most, u.grown[0].most)
		machines -= u.size[0].most
		gpus[u.before.offer.accelerator] -= u.size[0].most * int64(u.before.offer.gpus)
	}
	n.cents += max(0, usual, most)
	n.machines += max(0, machines)
	for name, k := range gpus {
		n.gpus[name] += max(0, k)
	}
}

// TestCountsPlannedMachinesOrAsks checks that the gate never allows less than the machines that a
// plan starts.
func TestCountsPlannedMachinesOrAsks(t *testing.T) {
	var allowed, asked int
	rapid.Check(t, func(rt *rapid.T) {
		var all []planned
		var templates []*drawnTemplate
		for i := range rapid.IntRange(1, 4).Draw(rt, "templates") {
			d, p := drawTemplate(rt, i)
			templates, all = append(templates, d), append(all, p)
		}
		want := naive{gpus: map[string]int64{}}
		unshared := false
		for i := range rapid.IntRange(1, 4).Draw(rt, "groups") {
			u := drawUse(rt, i, templates)
			all = append(all, u.plan)
			want.add(u)
			changes := !u.was || u.before != u.after || u.size[0] != u.size[1] || u.grown[0] != u.grown[1]
			unshared = unshared || u.is && !u.after.shared && u.size[1].most > 0 && changes
		}
		// An open reservation in one zone, and machines in its zone and in another.
		if rapid.Bool().Draw(rt, "reservation") {
			o, n := rapid.SampledFrom(offers).Draw(rt, "reserved type"), rapid.Int64Range(1, 4).Draw(rt, "reserved")
			all = append(all, made("aws_ec2_capacity_reservation.r", object{
				"instance_type": o.kind, "instance_count": n, "availability_zone": "us-east-1a",
			}, nil, nil))
			want.machines, want.cents = want.machines+n, want.cents+n*o.demand
			want.gpus[o.accelerator] += n * int64(o.gpus)
			for i := range rapid.IntRange(0, 5).Draw(rt, "machines") {
				m, zone := rapid.SampledFrom(offers).Draw(rt, "machine"), rapid.SampledFrom([]string{
					"us-east-1a", "us-east-1b",
				}).Draw(rt, "zone")
				all = append(all, made(fmt.Sprintf("aws_instance.i[%d]", i), object{
					"instance_type": m.kind, "availability_zone": zone,
					"root_block_device": []any{object{"volume_size": 50, "volume_type": "gp3"}}}, nil, nil))
				if want.cents += diskCents; m.kind == o.kind && zone == "us-east-1a" && n > 0 {
					n--
					continue
				}
				want.machines, want.cents = want.machines+1, want.cents+m.demand
				want.gpus[m.accelerator] += int64(m.gpus)
			}
		}
		order := rapid.Permutation(all).Draw(rt, "order")
		e := estimated(t, planOf(t, nil, order...))
		if len(e.Open) > 0 {
			asked++
			return
		}
		allowed++
		if unshared {
			rt.Fatalf("machines on dedicated hardware are allowed")
		}
		if got := int64(e.P95) / 10_000_000; got != want.cents || int64(e.Machines) != want.machines {
			rt.Fatalf("%d cents and %d machines, want %d and %d", got, e.Machines, want.cents, want.machines)
		}
		for name, n := range want.gpus {
			if int64(e.GPUs[name]) != n {
				rt.Fatalf("%d × %s, want %d", e.GPUs[name], name, n)
			}
		}
	})
	if allowed < asked/4 || asked == 0 {
		t.Errorf("%d plans are allowed and %d asked about: the corpus says little", allowed, asked)
	}
}
