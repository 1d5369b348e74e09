package estimate

import (
	"errors"
	"fmt"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/price/aws"
)

// meters are the types of resources that are priced, each with its reader. The names and defaults
// of attributes are those of the providers' documentation (hashicorp/aws, google and azurerm).
var meters map[string]func(*meter)

func init() {
	meters = map[string]func(*meter){
		"aws_instance":                         (*meter).instance,
		"aws_spot_instance_request":            (*meter).instance,
		launchTemplate:                         func(*meter) {}, // its machines are in its groups
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
		"aws_vpc":                              (*meter).vpc,
		"aws_autoscaling_policy":               (*meter).scaling,
		"google_compute_instance":              (*meter).google,
		"azurerm_linux_virtual_machine":        (*meter).azure,
	}
}

// meter reads the monthly cost of one resource.
type meter struct {
	*planner
	change *tfjson.ResourceChange
	// readsCurrent is true if it reads the current state, not the planned one.
	readsCurrent bool
	// isTrial is true if the lines are compared with others, so that nothing is used up.
	isTrial bool
	// used are the contents of the launch templates that were read.
	used []string
	// isWorstCase is true if the lines are the most expensive of several possible ones.
	isWorstCase bool
	kind        string
	address     string
	at          attributes
	region      string
	lines       []Line
	hourly      []money.Amount
	unknown     []string
	unpriced    []string
	machines    int
	gpus        map[string]int
	err         error
}

func (c *planner) meter(change *tfjson.ResourceChange, before bool) *meter {
	at := attributesOf(change.Change.After, change.Change.AfterUnknown)
	if before {
		at = attributesOf(change.Change.Before, nil)
	}
	return &meter{
		planner: c, change: change, readsCurrent: before, kind: change.Type, address: change.Address, at: at,
		gpus: map[string]int{},
	}
}

// worst returns the upper bound of the sum of the lines.
func (m *meter) worst() (worst money.Amount) {
	_ = m.total(nil, &worst, nil) // an overflow is found where the lines are added to the plan
	return worst
}

// read fills the lines.
func (m *meter) read() error {
	if strings.HasPrefix(m.kind, "aws_") && m.kind != launchTemplate {
		if m.region = m.where(m.change, m.at); m.region == "" {
			m.open("its region is not known")
			return nil
		}
	}
	meters[m.kind](m)
	if m.kind != launchTemplate { // it is looked at where it is used
		m.unread(m.kind, m.at)
	}
	return m.err
}

// open notes something that is unknown.
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
		kind = "gp2" // EBS's default
	}
	m.each(what+" ("+kind+")", price.Item("ebs:"+kind), size, usual, most)
	iops, iopsState := at.number("iops")
	throughput, _ := at.number("throughput")
	switch kind {
	case "gp3": // without a value in the plan, the included performance
		m.each(what+": IOPS over 3,000", price.ItemGP3IOPS, iops-aws.GP3FreeIOPS, usual, most)
		m.each(what+": throughput over 125 MiB/s", price.ItemGP3Throughput, throughput-aws.GP3FreeMiBps, usual, most)
	case "io1", "io2":
		if iopsState != knownValue {
			m.open("the IOPS of its %s are not known before it is there", what)
		}
		m.each(what+": IOPS", price.Item("ebs:"+kind+":iops"), iops, usual, most)
	}
}

// each adds so many units of an item for each of some machines.
func (m *meter) each(what string, item price.Item, n, usual, most int64) {
	if n <= 0 || most <= 0 {
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

func (m *meter) ebs() { m.volume("volume", m.at, 1, 1) }

// mapped adds the disks of machines with a launch template.
func (m *meter) mapped(template attributes, usual, most int64) {
	if most <= 0 {
		return
	}
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

func (m *meter) nat() {
	if mode, _ := m.at.text("availability_mode"); mode == "regional" {
		m.open("a regional gateway is charged for each zone that it is in")
	}
	m.rate("NAT gateway", price.ItemNAT, 1)
	if p, err := m.book.Rate(price.ItemNATData, m.region); err == nil {
		m.open("what passes through it costs $%s a GiB", p.Rate)
	}
}

// vpc notes a VPC whose machines all run on dedicated hardware, whatever they ask for.
func (m *meter) vpc() {
	if tenancy, _ := m.at.text("instance_tenancy"); tenancy != "" && tenancy != "default" {
		m.open("machines in it run with tenancy %q, and the price book holds shared tenancy", tenancy)
	}
}

// scaling notes a policy that may raise the largest size of its group (Auto Scaling API,
// PredictiveScalingConfiguration).
func (m *meter) scaling() {
	for _, b := range m.at.block("predictive_scaling_configuration") {
		behavior, state := b.text("max_capacity_breach_behavior")
		if state == unknownValue || behavior != "" && behavior != "HonorMaxCapacity" {
			m.open("it may raise the largest size of its group")
		}
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
	m.open("its requests are charged by use, in addition to its hours")
}

// managed adds machines of a managed service. Without a price they are unknown.
func (m *meter) managed(what, service, kind string, usual, most int64) {
	p, err := m.book.Managed(service, kind, m.region)
	if errors.Is(err, price.ErrUnpriced) && service != "sagemaker" {
		m.open("the price of %s in %s is not in the price book", kind, m.region)
		return
	}
	m.priced(what+" "+kind, p, err, usual, most)
}

func (m *meter) notebook() {
	kind, state := m.at.text("instance_type")
	if state != knownValue {
		m.open("instance_type is known only after the plan is applied")
		return
	}
	m.managed("notebook", "sagemaker", kind, 1, 1)
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

// database adds a database of RDS with its storage. A standby costs as much as its primary.
func (m *meter) database() {
	class, state := m.at.text("instance_class")
	engine, engineState := m.at.text("engine")
	size, sizeState := m.at.number("allocated_storage")
	if state != knownValue || engineState != knownValue || sizeState != knownValue {
		m.open("its class, engine or storage is known only after the plan is applied")
		return
	}
	license, licenseState := m.at.text("license_model")
	if licenseState == unknownValue && m.configures("license_model") {
		m.open("its license model is known only after the plan is applied")
	}
	copies := int64(1)
	if m.at.flag("multi_az") || m.at.state("multi_az") == unknownValue {
		copies = 2
	}
	m.managed("database", aws.DatabaseService(engine, license), class, copies, copies)
	kind, _ := m.at.text("storage_type")
	iops, iopsState := m.at.number("iops")
	switch {
	case kind != "":
	case iops > 0:
		kind = "io1" // RDS's default with IOPS
	default:
		kind = "gp2" // RDS's default without IOPS
	}
	most, mostState := m.at.number("max_allocated_storage")
	if mostState == unknownValue {
		m.open("how much its storage grows is known only after the plan is applied")
	}
	m.each("database storage ("+kind+")", price.Item("rds:storage:"+kind), 1, size*copies, max(size, most)*copies)
	throughput, throughputState := m.at.number("storage_throughput")
	switch kind {
	case "gp3":
		free, freeMiBps := aws.DatabaseGP3Free(engine, size)
		m.each(fmt.Sprintf("database IOPS over %s", plain.Number(float64(free), 0)),
			price.ItemRDSGP3IOPS, iops-free, copies,
			copies)
		m.each(fmt.Sprintf("database throughput over %d MiB/s", freeMiBps),
			price.ItemRDSGP3Throughput, throughput-freeMiBps,
			copies, copies)
		if iopsState == unknownValue && m.configures("iops") || throughputState == unknownValue &&
			m.configures("storage_throughput") {
			m.open("the IOPS or the throughput of its storage are known only after the plan is applied")
		}
	case "io1", "io2":
		if iopsState != knownValue {
			m.open("the IOPS of its storage are not known before it is there")
		}
		m.each("database IOPS ("+kind+")", price.Item("rds:iops:"+kind), iops, copies, copies)
	case "standard":
		m.open("requests to magnetic storage are charged in addition")
	}
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
		if e.Cloud == cloud && e.Service == price.Compute && e.Type == kind && e.Region == m.region &&
			e.Term == price.OnDemand && e.Part == price.Whole {
			m.priced(kind+" on demand", e.Price, nil, 1, 1)
			m.count(kind, 1)
			return
		}
	}
	m.open("the price of %s in %s is not in the price book", kind, m.region)
}
