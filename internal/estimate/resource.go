package estimate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
)

// meters are the types of resources that are priced, each with what reads it. The names
// and defaults of attributes are those of the providers' documentation
// (hashicorp/aws, google and azurerm).
var meters map[string]func(*meter)

func init() {
	meters = map[string]func(*meter){
		"aws_instance":                         (*meter).instance,
		"aws_spot_instance_request":            (*meter).instance,
		"aws_launch_template":                  func(*meter) {}, // what it starts is in its groups
		"aws_autoscaling_group":                (*meter).group,
		"aws_eks_node_group":                   (*meter).nodes,
		"aws_ec2_capacity_reservation":         (*meter).reserved,
		"aws_ebs_volume":                       (*meter).ebs,
		"aws_eip":                              func(m *meter) { m.rate("public IPv4 address", price.ItemAddress, 1) },
		"aws_nat_gateway":                      (*meter).nat,
		"aws_lb":                               (*meter).balancer,
		"aws_alb":                              (*meter).balancer,
		"aws_elb":                              (*meter).balancer,
		"aws_sagemaker_notebook_instance":      (*meter).notebook,
		"aws_sagemaker_endpoint_configuration": (*meter).endpoint,
		"aws_db_instance":                      (*meter).database,
		"aws_cloudformation_stack":             (*meter).stack,
		"google_compute_instance":              (*meter).google,
		"azurerm_linux_virtual_machine":        (*meter).azure,
	}
}

// meter reads what one resource costs in a month.
type meter struct {
	*planner
	change   *tfjson.ResourceChange
	kind     string
	address  string
	at       attributes
	region   string
	lines    []Line
	hourly   []money.Amount
	unknown  []string
	unpriced []string
	machines int
	gpus     map[string]int
	err      error
}

func (c *planner) meter(change *tfjson.ResourceChange, values, unknown any) *meter {
	v, _ := values.(map[string]any)
	u, _ := unknown.(map[string]any)
	return &meter{planner: c, change: change, kind: change.Type, address: change.Address, at: attributes{v, u}, gpus: map[string]int{}}
}

// read fills the lines.
func (m *meter) read() error {
	if strings.HasPrefix(m.kind, "aws_") && m.kind != "aws_launch_template" {
		if m.region = m.where(m.change, m.at); m.region == "" {
			m.open("its region is not known")
			return nil
		}
	}
	meters[m.kind](m)
	return m.err
}

// open notes something that is not known.
func (m *meter) open(format string, a ...any) {
	m.unknown = append(m.unknown, m.address+": "+fmt.Sprintf(format, a...))
}

// total adds the lines to amounts; nil is not wanted.
func (m *meter) total(p50, p95, hourly *money.Amount) (err error) {
	add := func(to *money.Amount, v money.Amount) {
		if to != nil && err == nil {
			*to, err = to.Add(v)
		}
	}
	for i, l := range m.lines {
		add(p50, l.P50)
		add(p95, l.P95)
		add(hourly, m.hourly[i])
	}
	return err
}

// priced adds a line of so many units that are there all the month, at most of them at
// the worst.
func (m *meter) priced(what string, p price.Price, err error, usual, most int64) {
	switch {
	case errors.Is(err, price.ErrUnpriced):
		m.unpriced = append(m.unpriced, fmt.Sprintf("%s in %s (%s)", what, m.region, m.address))
		return
	case err != nil:
		m.err = err
		return
	}
	n50, n95, d := usual, most, int64(money.HoursPerMonth)
	if strings.HasSuffix(p.Unit, "hour") {
		var ok50, ok95 bool
		n50, ok50 = product(usual, money.HoursPerMonth)
		n95, ok95 = product(most, money.HoursPerMonth)
		if d = 1; !ok50 || !ok95 {
			m.err = money.ErrOverflow
			return
		}
	}
	l, err := line(what, p, n50, n95, 1)
	if err != nil {
		m.err = err
		return
	}
	hourly, err := p.Cost(most, d)
	if err != nil {
		m.err = err
		return
	}
	l.Resource = m.address
	m.lines, m.hourly = append(m.lines, l), append(m.hourly, hourly)
}

// rate adds an item of the price book.
func (m *meter) rate(what string, item price.Item, n int64) {
	p, err := m.book.Rate(item, m.region)
	m.priced(what, p, err, n, n)
}

// machine adds machines, and counts their GPUs: as many as there may be, because a group
// grows without an approval.
func (m *meter) machine(kind string, spot bool, usual, most int64) {
	what, find := kind+" on demand", m.book.OnDemand
	if spot {
		what, find = kind+" on spot", m.book.Spot
	}
	p, err := find(kind, m.region)
	m.priced(what, p, err, usual, most)
	m.count(kind, most)
}

func (m *meter) count(kind string, n int64) {
	m.machines += int(n)
	if known, ok := m.book.Machine(strings.TrimPrefix(kind, "ml.")); ok && known.GPUs() > 0 {
		m.gpus[known.Accelerator] += known.GPUs() * int(n)
	}
}

func (m *meter) instance() {
	spot := m.kind == "aws_spot_instance_request"
	if market := m.at.block("instance_market_options"); len(market) > 0 {
		v, _ := market[0].text("market_type")
		spot = spot || v == "spot"
	}
	source := m.at
	kind, state := source.text("instance_type")
	if kind == "" {
		if template, ok := m.template(m.change, m.at); ok {
			source = template
			kind, state = source.text("instance_type")
		}
	}
	tenancy, _ := m.at.text("tenancy")
	switch {
	case state == unknownValue:
		m.open("instance_type is known only after the plan is applied")
	case kind == "":
		m.open("it has no instance_type, and its launch template is not in the plan")
	case tenancy != "" && tenancy != "default":
		m.open("the price book holds shared tenancy, and its tenancy is %q", tenancy)
	default:
		m.machine(kind, spot, 1, 1)
	}
	if m.at.state("block_device_mappings") == noValue {
		m.blocks(m.at, 1, 1)
	} else { // of CloudFormation
		m.mapped(m.at, 1, 1)
	}
}

// blocks adds the disks of an instance.
func (m *meter) blocks(at attributes, usual, most int64) {
	roots := at.block("root_block_device")
	switch {
	case len(roots) > 0:
		m.volume("root disk", roots[0], usual, most)
	default:
		m.open("the size of its root disk is that of its image")
	}
	for _, b := range at.block("ebs_block_device") {
		m.volume("disk", b, usual, most)
	}
}

// volume adds a disk, with the attributes of a volume or of a block device.
func (m *meter) volume(what string, at attributes, usual, most int64) {
	sizeKey, kindKey := "volume_size", "volume_type"
	if m.kind == "aws_ebs_volume" {
		sizeKey, kindKey = "size", "type"
	}
	size, state := at.number(sizeKey)
	kind, kindState := at.text(kindKey)
	switch {
	case state != knownValue || kindState == unknownValue:
		m.open("the size or type of its %s is not known before it is there", what)
		return
	case kind == "":
		kind = "gp2" // what EBS makes where nothing is said
	}
	each := func(what string, item price.Item, n int64) {
		if n <= 0 {
			return
		}
		n50, ok50 := product(n, usual)
		n95, ok95 := product(n, most)
		if !ok50 || !ok95 {
			m.err = money.ErrOverflow
			return
		}
		p, err := m.book.Rate(item, m.region)
		m.priced(what, p, err, n50, n95)
	}
	each(what+" ("+kind+")", price.Item("ebs:"+kind), size)
	iops, iopsState := at.number("iops")
	throughput, _ := at.number("throughput")
	switch kind {
	case "gp3": // where the plan does not say, it is what costs nothing
		each(what+": IOPS over 3,000", price.ItemGP3IOPS, iops-aws.GP3FreeIOPS)
		each(what+": throughput over 125 MiB/s", price.ItemGP3Throughput, throughput-aws.GP3FreeMiBps)
	case "io1", "io2":
		if iopsState != knownValue {
			m.open("the IOPS of its %s are not known before it is there", what)
		}
		each(what+": IOPS", price.Item("ebs:"+kind+":iops"), iops)
	}
}

func (m *meter) ebs() { m.volume("volume", m.at, 1, 1) }

// group adds the machines of an Auto Scaling group with a launch template.
func (m *meter) group() {
	least, _ := m.at.number("min_size")
	most, mostState := m.at.number("max_size")
	usual, state := m.at.number("desired_capacity")
	if state == noValue {
		usual, state = least, knownValue
	}
	template, found := m.template(m.change, m.at)
	kind, kindState := template.text("instance_type")
	switch {
	case state != knownValue || mostState != knownValue:
		m.open("its size is known only after the plan is applied")
	case len(m.at.block("mixed_instances_policy")) > 0:
		m.open("it mixes machine types: what it starts is decided when it starts")
	case !found || kindState != knownValue || kind == "":
		m.open("the machine type of its launch template is not in the plan")
	default:
		market := ""
		if options := template.block("instance_market_options"); len(options) > 0 {
			market, _ = options[0].text("market_type")
		}
		m.machine(kind, market == "spot", usual, max(usual, most))
		m.mapped(template, usual, max(usual, most))
	}
}

// mapped adds the disks of machines with a launch template.
func (m *meter) mapped(template attributes, usual, most int64) {
	disks := template.block("block_device_mappings")
	for _, d := range disks {
		for _, b := range d.block("ebs") {
			m.volume("disk", b, usual, most)
		}
	}
	if len(disks) == 0 {
		m.open("the size of the root disk of its machines is that of their image")
	}
}

// nodes adds the machines of a node group of EKS. Their types, market and disks are its
// own or those of its launch template; where it names several types, which of them start
// is decided when they do.
func (m *meter) nodes() {
	const (
		usualType = "t3.medium" // what EKS starts where nothing is said
		usualDisk = 20          // GiB, likewise
	)
	var size attributes
	if b := m.at.block("scaling_config"); len(b) > 0 {
		size = b[0]
	}
	usual, state := size.number("desired_size")
	most, mostState := size.number("max_size")
	if state != knownValue || mostState != knownValue {
		m.open("its size is known only after the plan is applied")
		return
	}
	most = max(usual, most)
	template, templated := attributes{}, len(m.at.block("launch_template")) > 0
	if templated {
		var found bool
		if template, found = m.template(m.change, m.at); !found {
			m.open("its launch template is not in the plan")
			return
		}
	}
	kind, kindState := template.text("instance_type")
	own, _ := m.at.values["instance_types"].([]any)
	switch {
	case len(own) > 1:
		m.open("which of its %d machine types start is decided when they do", len(own))
		return
	case len(own) == 1:
		kind, _ = own[0].(string)
	case kindState == unknownValue || kind == "" && templated && m.at.state("instance_types") == unknownValue:
		m.open("its machine type is known only after the plan is applied")
		return
	case kind == "":
		kind = usualType
	}
	market, _ := m.at.text("capacity_type")
	m.machine(kind, strings.EqualFold(market, "SPOT"), usual, most)
	if templated {
		m.mapped(template, usual, most)
		return
	}
	disk, state := m.at.number("disk_size")
	if state != knownValue {
		disk = usualDisk
	}
	n50, ok50 := product(disk, usual)
	n95, ok95 := product(disk, most)
	if !ok50 || !ok95 {
		m.err = money.ErrOverflow
		return
	}
	p, err := m.book.Rate(price.ItemGP2, m.region)
	m.priced("root disk (gp2)", p, err, n50, n95)
}

// reserved adds what a capacity reservation costs, used or not: its machines on demand.
func (m *meter) reserved() {
	kind, state := m.at.text("instance_type")
	n, countState := m.at.number("instance_count")
	if state != knownValue || countState != knownValue || kind == "" {
		m.open("its machines are known only after the plan is applied")
		return
	}
	m.machine(kind, false, n, n)
}

func (m *meter) nat() {
	m.rate("NAT gateway", price.ItemNAT, 1)
	if p, err := m.book.Rate(price.ItemNATData, m.region); err == nil {
		m.open("what passes through it costs $%s a GiB", p.Rate)
	}
}

func (m *meter) balancer() {
	kind, state := m.at.text("load_balancer_type")
	switch {
	case m.kind == "aws_elb":
		kind = "classic"
	case state == unknownValue:
		m.open("load_balancer_type is known only after the plan is applied")
		return
	case kind == "":
		kind = "application"
	}
	m.rate("load balancer ("+kind+")", price.Item("lb:"+kind), 1)
	m.open("what it serves is charged by use, in addition to its hours")
}

// managed adds machines of a managed service. Without a price they are not known.
func (m *meter) managed(what, service, kind string, n int64) bool {
	p, err := m.book.Managed(service, kind, m.region)
	if errors.Is(err, price.ErrUnpriced) && service != "sagemaker" {
		m.open("the price of %s in %s is not in the price book", kind, m.region)
		return false
	}
	m.priced(what+" "+kind, p, err, n, n)
	return true
}

func (m *meter) notebook() {
	kind, state := m.at.text("instance_type")
	if state != knownValue {
		m.open("instance_type is known only after the plan is applied")
		return
	}
	m.managed("notebook", "sagemaker", kind, 1)
	m.count(kind, 1)
	size, state := m.at.number("volume_size")
	if state == noValue {
		size = 5 // GiB, SageMaker's own default
	}
	if state == unknownValue {
		m.open("the size of its volume is known only after the plan is applied")
		return
	}
	m.rate("notebook volume", price.ItemSageMakerStorage, size)
}

func (m *meter) endpoint() {
	for _, v := range m.at.block("production_variants") {
		kind, state := v.text("instance_type")
		n, countState := v.number("initial_instance_count")
		switch {
		case len(v.block("serverless_config")) > 0:
			m.open("a serverless variant is charged by use")
		case state != knownValue || countState == unknownValue:
			m.open("a variant's machines are known only after the plan is applied")
		default:
			m.managed("endpoint", "sagemaker", kind, max(n, 1))
			m.count(kind, max(n, 1))
		}
	}
}

func (m *meter) database() {
	class, state := m.at.text("instance_class")
	engine, engineState := m.at.text("engine")
	size, sizeState := m.at.number("allocated_storage")
	if state != knownValue || engineState != knownValue || sizeState != knownValue {
		m.open("its class, engine or storage is known only after the plan is applied")
		return
	}
	copies := int64(1)
	if m.at.flag("multi_az") || m.at.state("multi_az") == unknownValue {
		copies = 2
	}
	if !m.managed("database", "rds:"+engine, class, copies) {
		return
	}
	kind, _ := m.at.text("storage_type")
	if kind == "" {
		kind = "gp2" // what RDS makes without IOPS
	}
	m.rate("database storage ("+kind+")", price.Item("rds:storage:"+kind), size*copies)
}

func (m *meter) google() {
	zone, _ := m.at.text("zone")
	if at := strings.LastIndexByte(zone, '-'); at > 0 {
		m.region = zone[:at]
	}
	m.elsewhere("gcp", "machine_type")
}

func (m *meter) azure() {
	m.region, _ = m.at.text("location")
	m.elsewhere("azure", "size")
}

// elsewhere adds a machine of another cloud, where the book has its price.
func (m *meter) elsewhere(cloud, key string) {
	kind, state := m.at.text(key)
	if state != knownValue {
		m.open("%s is known only after the plan is applied", key)
		return
	}
	for _, e := range m.book.Entries() {
		if e.Cloud == cloud && e.Service == price.Compute && e.Type == kind && e.Region == m.region && e.Term == price.OnDemand && e.Part == price.Whole {
			m.priced(kind+" on demand", e.Price, nil, 1, 1)
			m.count(kind, 1)
			return
		}
	}
	m.open("the price of %s in %s is not in the price book", kind, m.region)
}

// attributes are the values of a resource, and which of them are not known yet.
type attributes struct{ values, unknown map[string]any }

// state says what is known of an attribute.
type state int

const (
	noValue      state = iota // it has none
	unknownValue              // it is known only after the plan is applied
	knownValue
)

func (a attributes) state(key string) state {
	switch {
	case a.unknown[key] == true:
		return unknownValue
	case a.values[key] == nil:
		return noValue
	}
	return knownValue
}

func (a attributes) text(key string) (string, state) {
	s, _ := a.values[key].(string)
	return s, a.state(key)
}

// number is a whole number that is not negative; one that is not counts as not known.
func (a attributes) number(key string) (int64, state) {
	s := a.state(key)
	if s != knownValue {
		return 0, s
	}
	var text string
	switch v := a.values[key].(type) {
	case json.Number:
		text = v.String()
	case string:
		text = v
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, unknownValue
	}
	return n, knownValue
}

func (a attributes) flag(key string) bool {
	v, _ := a.values[key].(bool)
	s, _ := a.values[key].(string) // as CloudFormation may write it
	return v || strings.EqualFold(s, "true")
}

// block returns nested blocks.
func (a attributes) block(key string) []attributes {
	list, _ := a.values[key].([]any)
	unknown, _ := a.unknown[key].([]any)
	var out []attributes
	for i, item := range list {
		v, ok := item.(map[string]any)
		if !ok {
			continue
		}
		var u map[string]any
		if i < len(unknown) {
			u, _ = unknown[i].(map[string]any)
		}
		out = append(out, attributes{v, u})
	}
	return out
}
