package estimate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/price"
)

// launch is how machines are started: by their own attributes and those of a launch template.
type launch struct {
	kind string
	// market is empty for on demand, or "spot" or "capacity-block".
	market string
	// tenancy is empty for shared hardware.
	tenancy string
	zone    string
	// reservation is the block capacity_reservation_specification.
	reservation attributes
}

// Markets of machines (EC2 API, InstanceMarketOptionsRequest).
const (
	marketSpot  = "spot"
	marketBlock = "capacity-block"
)

// launchOf reads how a machine is started from its own attributes and its launch template;
// its own come first.
func (m *meter) launchOf(own, template attributes) launch {
	l := launch{zone: m.zone(own)}
	for i, at := range []attributes{own, template} {
		if b := at.block("instance_market_options"); len(b) > 0 && l.market == "" {
			l.market, _ = b[0].text("market_type")
		}
		tenancy, state := at.text("tenancy")
		if b := at.block("placement"); len(b) > 0 {
			tenancy, state = b[0].text("tenancy")
			if zone, _ := b[0].text("availability_zone"); l.zone == "" {
				l.zone = zone
			}
		}
		if l.tenancy == "" {
			l.tenancy = tenancy
		}
		// A machine's own tenancy is computed where it is not configured.
		if state == unknownValue && l.tenancy == "" && (i > 0 || m.configures("tenancy")) {
			m.open("its tenancy is known only after the plan is applied")
		}
		if b := at.block("capacity_reservation_specification"); len(b) > 0 && l.reservation.values == nil {
			l.reservation = b[0]
		}
	}
	if l.tenancy == "default" {
		l.tenancy = ""
	}
	return l
}

// configures reports whether the configuration sets an attribute, or does not show it.
func (m *meter) configures(key string) bool {
	exprs := m.expressions(m.change)
	return exprs == nil || isConfigured(exprs, key)
}

// zone is the availability zone of a resource, by itself or its subnet; empty if it is unknown or
// there are several.
func (m *meter) zone(at attributes) string {
	if zone, _ := at.text("availability_zone"); zone != "" {
		return zone
	}
	list := func(key string) string {
		if values, _ := at.values[key].([]any); len(values) == 1 {
			s, _ := values[0].(string)
			return s
		}
		return ""
	}
	if zone := list("availability_zones"); zone != "" {
		return zone
	}
	subnet, _ := at.text("subnet_id")
	if subnet == "" {
		subnet = list("vpc_zone_identifier")
	}
	return m.subnets[subnet]
}

// start adds machines. Those of a capacity block are paid with the block, upfront, and have no
// hours of their own (EC2 user guide, "Capacity Blocks for ML": the price of a block is
// charged upfront). Those that a reservation covers are charged by the reservation.
func (m *meter) start(l launch, usual, most int64) {
	if most <= 0 {
		return
	}
	switch {
	case l.tenancy != "":
		m.open("the price book holds shared tenancy, and its tenancy is %q", l.tenancy)
		m.count(l.kind, most)
		return
	case l.market == marketBlock:
		m.planner.blocks = true
		m.count(l.kind, most)
		return
	case l.market != "" && l.market != marketSpot:
		m.open("its market %q is not known to curfew; it is priced on demand", l.market)
	case l.market == "":
		covered := m.cover(l, most)
		usual, most = max(0, usual-covered), most-covered
		if most == 0 {
			return
		}
	}
	m.machine(l.kind, l.market == marketSpot, usual, most)
}

// instance adds one machine with its disks.
func (m *meter) instance() {
	blocks := m.at.block("launch_template")
	if len(blocks) == 0 {
		if m.at.unknown["launch_template"] == true && m.configures("launch_template") {
			m.open("its launch template is known only after the plan is applied")
		}
		m.instanceOf(attributes{})
		return
	}
	of := m.templateIn(blocks[0], nestedBlock(m.expressions(m.change), 0, "launch_template"), "id", "name")
	if m.mostExpensive(of, (*meter).instanceOf) {
		return
	}
	if kind, _ := m.at.text("instance_type"); kind != "" {
		m.instanceOf(attributes{})
		return
	}
	m.blocks(m.at, 1, 1)
}

// instanceOf adds a machine that is started with a launch template; it has no values if there is
// none.
func (m *meter) instanceOf(template attributes) {
	l := m.launchOf(m.at, template)
	if m.kind == "aws_spot_instance_request" {
		l.market = marketSpot
	}
	kind, state := m.at.text("instance_type")
	if kind == "" && (state == noValue || template.values != nil && !m.configures("instance_type")) {
		kind, state = template.text("instance_type")
		m.requirements(template)
	}
	switch l.kind = kind; {
	case state == unknownValue:
		m.open("instance_type is known only after the plan is applied")
	case kind == "":
		m.open("it has no instance_type, and its launch template has none")
	default:
		m.start(l, 1, 1)
	}
	switch {
	case m.at.state("block_device_mappings") != noValue: // of CloudFormation
		m.mapped(m.at, 1, 1)
	case len(m.at.block("root_block_device")) == 0 && len(template.block("block_device_mappings")) > 0:
		m.mapped(template, 1, 1)
		for _, b := range m.at.block("ebs_block_device") {
			m.volume("disk", b, 1, 1)
		}
	default:
		m.blocks(m.at, 1, 1)
	}
	m.unread(launchTemplate, template)
	if lendsAddress(m.at) || lendsAddress(template) {
		m.rate("public IPv4 address", price.ItemAddress, 1)
	}
}

// lendsAddress reports whether a machine asks for a public IPv4 address while it runs. Where it does
// not say, its subnet decides.
func lendsAddress(at attributes) bool {
	const key = "associate_public_ip_address"
	inTemplate := func(card attributes) bool { return card.flag(key) }
	return at.flag(key) || slices.ContainsFunc(at.block("network_interfaces"), inTemplate)
}

// requirements notes that a template selects machines by requirements.
func (m *meter) requirements(at attributes) bool {
	if len(at.block("instance_requirements")) == 0 && at.unknown["instance_requirements"] != true {
		return false
	}
	m.open("its machine types are chosen by instance_requirements when they start")
	return true
}

// size is the number of machines a group starts.
type size struct{ usual, most int64 }

// group adds the machines of an Auto Scaling group.
func (m *meter) group() {
	least, _ := m.at.number("min_size")
	most, mostState := m.at.number("max_size")
	usual, state := m.at.number("desired_capacity")
	if state == noValue || state == unknownValue && m.at.values["desired_capacity"] == nil &&
		!m.configures("desired_capacity") {
		usual, state = least, knownValue
	}
	if state != knownValue || mostState != knownValue {
		m.open("its size is known only after the plan is applied")
		return
	}
	if unit, _ := m.at.text("desired_capacity_type"); unit != "" && unit != "units" {
		m.open("its size is counted in %s, not in machines", unit)
		return
	}
	of := size{usual, max(usual, most)}
	if policy := m.at.block("mixed_instances_policy"); len(policy) > 0 {
		m.mixed(policy[0], of)
		return
	}
	blocks := m.at.block("launch_template")
	if len(blocks) == 0 {
		m.open("the machine type of its launch template is not in the plan")
		return
	}
	running, kept := m.warm(of)
	m.mostExpensive(m.templateIn(blocks[0], nestedBlock(m.expressions(m.change), 0, "launch_template"), "id", "name"),
		func(x *meter, template attributes) {
			l := x.launchOf(m.at, template)
			kind, kindState := template.text("instance_type")
			l.kind = kind
			switch {
			case x.requirements(template):
			case kindState != knownValue || l.kind == "":
				x.open("the machine type of its launch template is not in the plan")
			default:
				x.start(l, running.usual, running.most)
				if lendsAddress(template) {
					x.each("public IPv4 addresses", price.ItemAddress, 1, running.usual, running.most)
				}
			}
			x.mapped(template, kept.usual, kept.most)
			x.unread(launchTemplate, template)
		})
}

// warm returns how many machines of a group run, and how many there are with those of its warm pool,
// whose disks are kept while they are stopped or hibernated. A warm pool holds the difference
// between its max_group_prepared_capacity, or else the group's largest size, and what runs, and
// never less than its min_size (Auto Scaling API, PutWarmPool).
func (m *meter) warm(of size) (running, kept size) {
	pools := m.at.block("warm_pool")
	if len(pools) == 0 {
		if m.at.unknown["warm_pool"] == true {
			m.open("its warm pool is known only after the plan is applied")
		}
		return of, of
	}
	pool := pools[0]
	least, leastState := pool.number("min_size")
	prepared := of.most
	if text := fmt.Sprint(pool.values["max_group_prepared_capacity"]); pool.values["max_group_prepared_capacity"] !=
		nil && text != "-1" {
		n, state := pool.number("max_group_prepared_capacity")
		if prepared = n; state != knownValue {
			m.open("the size of its warm pool is known only after the plan is applied")
		}
	}
	if leastState == unknownValue || pool.unknown["max_group_prepared_capacity"] == true {
		m.open("the size of its warm pool is known only after the plan is applied")
	}
	kept = size{max(of.usual+least, prepared), max(of.most+least, prepared)}
	switch state, known := pool.text("pool_state"); {
	case known == unknownValue || state == "Running":
		return kept, kept
	case state == "" || state == "Stopped" || state == "Hibernated":
	default:
		m.open("the state %q of its warm pool is not known to curfew", state)
	}
	return of, kept
}

// mixed adds the machines of a group with several types or markets. Which of the types start
// is decided when they do, so that the most expensive is priced.
//
// Machines up to on_demand_base_capacity are on demand, and of the rest
// on_demand_percentage_above_base_capacity, rounded up; all of them where nothing is said
// (Auto Scaling API, InstancesDistribution). A weight is how many units of the group's size
// a machine counts for (LaunchTemplateOverrides).
func (m *meter) mixed(policy attributes, of size) {
	if len(m.at.block("warm_pool")) > 0 {
		m.open("it has a warm pool, which groups of mixed types cannot have")
	}
	base, percent := int64(0), int64(100)
	if b := policy.block("instances_distribution"); len(b) > 0 {
		n, baseState := b[0].number("on_demand_base_capacity")
		p, percentState := b[0].number("on_demand_percentage_above_base_capacity")
		if baseState == knownValue {
			base = n
		}
		if percentState == knownValue && baseState != unknownValue {
			percent = min(p, 100)
		}
	}
	onDemand := func(n int64) int64 { return min(n, base) + (max(0, n-base)*percent+99)/100 }
	demand := size{onDemand(of.usual), onDemand(of.most)}
	spot := size{of.usual - demand.usual, of.most - demand.most}
	spot.most = max(spot.most, spot.usual)
	parts := policy.block("launch_template")
	if len(parts) == 0 {
		m.open("it mixes machine types, and which ones is not in the plan")
		return
	}
	if parts[0].unknown["override"] == true {
		m.open("the machine types that it mixes are known only after the plan is applied")
	}
	exprs := m.expressions(m.change)
	path := []string{"mixed_instances_policy", "launch_template"}
	named := func(at attributes, n int, path ...string) (launches, bool) {
		b := at.block("launch_template_specification")
		if len(b) == 0 {
			return launches{}, false
		}
		within := nestedBlock(exprs, n, path...)
		return m.templateIn(b[0], nestedBlock(within, 0, "launch_template_specification"), "launch_template_id",
			"launch_template_name"), true
	}
	common, _ := named(parts[0], 0, path...)
	var pools []pool
	overrides := parts[0].block("override")
	for i, o := range overrides {
		p := pool{of: common, weight: 1}
		if own, ok := named(o, i, append(slices.Clone(path), "override")...); ok {
			p.of = own
		}
		kind, state := o.text("instance_type")
		weight, weightState := o.number("weighted_capacity")
		if weightState == knownValue && weight > 0 {
			p.weight = weight
		}
		switch {
		case m.requirements(o):
			continue
		case state == unknownValue:
			m.open("a machine type that it mixes is known only after the plan is applied")
			continue
		}
		p.kind = kind
		pools = append(pools, p)
	}
	if len(overrides) == 0 {
		pools = []pool{{of: common, weight: 1}}
	}
	m.pools(pools, demand, "")
	m.pools(pools, spot, marketSpot)
}

// pool is a type of machines that a group may start.
type pool struct {
	of     launches
	kind   string // empty: that of its launch template
	weight int64
}

// pools adds machines of one of several pools, the most expensive.
func (m *meter) pools(of []pool, n size, market string) {
	if n.most <= 0 {
		return
	}
	kinds := map[string]bool{}
	var options []func(*meter)
	for _, p := range of {
		kinds[p.kind] = true
		options = append(options, func(x *meter) {
			x.mostExpensive(p.of, func(x *meter, template attributes) {
				l := x.launchOf(m.at, template)
				l.kind, l.market = p.kind, market
				if l.kind == "" {
					l.kind, _ = template.text("instance_type")
					x.requirements(template)
				}
				usual, most := (n.usual+p.weight-1)/p.weight, (n.most+p.weight-1)/p.weight
				if l.kind == "" {
					x.open("the machine type of its launch template is not in the plan")
				} else {
					x.start(l, usual, most)
				}
				x.mapped(template, usual, most)
				x.unread(launchTemplate, template)
			})
		})
	}
	if len(kinds) > 1 {
		m.isWorstCase = true
		m.open("which of its %d machine types start is decided when they do; the most expensive is priced", len(kinds))
	}
	m.choose(options)
}

// nodes adds the machines of a node group of EKS. Their types, market and disks are its
// own or those of its launch template; where it names several types, which of them start
// is decided when they do.
func (m *meter) nodes() {
	const (
		usualType = "t3.medium" // EKS's default
		usualDisk = 20          // GiB, likewise
	)
	var scaling attributes
	if b := m.at.block("scaling_config"); len(b) > 0 {
		scaling = b[0]
	}
	usual, state := scaling.number("desired_size")
	most, mostState := scaling.number("max_size")
	if state != knownValue || mostState != knownValue {
		m.open("its size is known only after the plan is applied")
		return
	}
	n := size{usual, max(usual, most)}
	market := ""
	switch capacity, state := m.at.text("capacity_type"); {
	case strings.EqualFold(capacity, "SPOT"):
		market = marketSpot
	case strings.EqualFold(capacity, "CAPACITY_BLOCK"):
		market = marketBlock
	case capacity != "" && !strings.EqualFold(capacity, "ON_DEMAND"):
		m.open("its capacity type %q is not known to curfew; it is priced on demand", capacity)
	case state == unknownValue && m.configures("capacity_type"):
		m.open("its capacity type is known only after the plan is applied; it is priced on demand")
	}
	var kinds []string
	own, _ := m.at.values["instance_types"].([]any)
	for _, v := range own {
		kind, _ := v.(string)
		kinds = append(kinds, kind)
	}
	late := m.at.unknown["instance_types"]
	if list, isList := late.([]any); isList {
		late = slices.Contains(list, any(true))
	}
	if late == true && m.configures("instance_types") && len(own) > 0 {
		m.open("its machine types are known only after the plan is applied")
		return
	}
	read := func(x *meter, template attributes) {
		l := x.launchOf(m.at, template)
		l.zone = "" // its subnets are usually in several
		if market != "" {
			l.market = market
		}
		kind, state := template.text("instance_type")
		of := kinds
		switch {
		case len(of) > 0:
		case state == unknownValue, kind == "" && late == true && m.configures("instance_types"):
			x.open("its machine type is known only after the plan is applied")
			return
		case x.requirements(template):
			return
		case kind == "":
			of = []string{usualType}
		default:
			of = []string{kind}
		}
		if len(of) > 1 {
			x.isWorstCase = true
			x.open("which of its %d machine types start is decided when they do; the most expensive is priced",
				len(of))
		}
		var options []func(*meter)
		for _, kind := range of {
			options = append(options, func(x *meter) {
				l := l
				l.kind = kind
				x.start(l, n.usual, n.most)
			})
		}
		x.choose(options)
		if template.values != nil {
			x.mapped(template, n.usual, n.most)
			x.unread(launchTemplate, template)
			return
		}
		disk, state := m.at.number("disk_size")
		if state != knownValue {
			disk = usualDisk
		}
		x.volume("root disk", attributes{
			values: map[string]any{"volume_size": fmt.Sprint(disk), "volume_type": "gp2"},
		},
			n.usual, n.most)
	}
	blocks := m.at.block("launch_template")
	switch {
	case len(blocks) > 0:
		m.mostExpensive(
			m.templateIn(blocks[0], nestedBlock(m.expressions(m.change), 0, "launch_template"), "id", "name"),
			read)
	case m.at.unknown["launch_template"] == true:
		m.open("its launch template is known only after the plan is applied")
	default:
		read(m, attributes{})
	}
}

// endpoint adds the machines of an endpoint's variants. Shadow variants run with the others
// and are charged alike (SageMaker developer guide, "Shadow tests"); a variant that scales by
// managed_instance_scaling may have its max_instance_count.
func (m *meter) endpoint() {
	for _, key := range []string{"production_variants", "shadow_production_variants"} {
		if m.at.unknown[key] == true {
			m.open("its %s are known only after the plan is applied", key)
		}
		for _, v := range m.at.block(key) {
			m.variant(v)
		}
	}
}

func (m *meter) variant(v attributes) {
	kind, state := v.text("instance_type")
	n, countState := v.number("initial_instance_count")
	if len(v.block("serverless_config")) > 0 {
		m.open("a serverless variant is charged by use")
		return
	}
	if state != knownValue || countState == unknownValue {
		m.open("a variant's machines are known only after the plan is applied")
		return
	}
	of := size{max(n, 1), max(n, 1)}
	if b := v.block("managed_instance_scaling"); len(b) > 0 {
		status, statusState := b[0].text("status")
		least, _ := b[0].number("min_instance_count")
		most, mostState := b[0].number("max_instance_count")
		switch {
		case strings.EqualFold(status, "DISABLED"):
		case statusState == unknownValue || mostState != knownValue:
			m.open("how many machines a variant scales to is not in the plan")
		default:
			of = size{max(of.usual, least), max(of.usual, least, most)}
		}
	}
	m.managed("endpoint", "sagemaker", kind, of.usual, of.most)
	m.count(kind, of.most)
	if disk, state := v.number("volume_size_in_gb"); state == knownValue && disk > 0 {
		m.each("variant volume", "sagemaker:storage", disk, of.usual, of.most)
	}
}
