package wire

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Launches adds to moto's RunInstances: it knows client tokens, refuses on request of a test, shows
// machines late, tags interfaces and removes them with their machines.
//
// A token is regional, or zonal where the launch names a zone or a subnet (EC2 User Guide,
// "Ensuring idempotency in Amazon EC2 API requests"): the same token in another zone is
// another launch.
type Launches struct {
	server *Server

	mu sync.Mutex
	// known holds launches by account, region, token and zone, and refused their refusals.
	known   map[string]knownLaunch
	refused map[string]refused
	// tokens maps machines to their tokens, and interfaces to the resources that are deleted with
	// them.
	tokens     map[string]string
	interfaces map[string][]attached
	refusals   []*LaunchRefusal
	late       bool
	last       url.Values
	hidden     map[string]bool
}

// refused is the refusal of a launch, and whether it also applies to a repetition.
type refused struct {
	err   error
	again bool
}

type knownLaunch struct {
	params string
	ids    []string
}

// attached is an interface of a machine, and whether it is deleted with it.
type attached struct {
	id      string
	deleted bool
}

// LaunchRefusal is a refusal of EC2. Empty fields match anything.
type LaunchRefusal struct {
	// Code is "InsufficientInstanceCapacity", "VcpuLimitExceeded",
	// "MaxSpotInstanceCountExceeded", "Unsupported", or "InvalidParameterValue" for an instance
	// profile that EC2 does not see yet.
	Code       string
	Type, Zone string
	// Times is the number of refused launches; 0 is all.
	Times int
	// Again also refuses the repetition of a refused launch with the same token.
	Again bool
}

func newLaunches(s *Server) *Launches {
	return &Launches{
		server: s, known: map[string]knownLaunch{}, refused: map[string]refused{}, tokens: map[string]string{},
		interfaces: map[string][]attached{}, hidden: map[string]bool{},
	}
}

func (l *Launches) answers() map[string]Answer {
	return map[string]Answer{
		"ec2:RunInstances": l.run, "ec2:DescribeInstances": l.describe, "ec2:TerminateInstances": l.terminate,
	}
}

// Refuse adds a refusal.
func (l *Launches) Refuse(r LaunchRefusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Times == 0 {
		r.Times = -1
	}
	l.refusals = append(l.refusals, &r)
}

// Last returns the parameters of the last launch.
func (l *Launches) Last() url.Values {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Late hides machines launched from now on until Show.
func (l *Launches) Late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = true
}

// Show shows all machines.
func (l *Launches) Show() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = false
	clear(l.hidden)
}

// Count returns the number of launches so far. A repetition with the same token does not count.
func (l *Launches) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.known)
	for key := range l.refused {
		if _, ok := l.known[key]; !ok {
			n++
		}
	}
	return n
}

// messages are EC2's own messages.
var messages = map[string]Failure{
	"InsufficientInstanceCapacity": {
		500, "",
		"We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be " +
			"working on provisioning additional capacity.",
	},
	"VcpuLimitExceeded": {
		400, "",
		"You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance bucket that the " +
			"specified instance type %s belongs to (%s). Please visit http://aws.amazon.com/contact-us/ec2-request to " +
			"request an adjustment to this limit.",
	},
	"MaxSpotInstanceCountExceeded": {400, "", "Max spot instance count exceeded for %s (%s)"},
	"InvalidParameterValue": {
		400, "",
		"Value (the profile of %s in %s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance " +
			"Profile ARN",
	},
	"Unsupported": {
		400, "", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).",
	},
}

// refusal returns the refusal of a launch, if any.
func (l *Launches) refusal(c *Call, zone string) refused {
	is := func(want, got string) bool { return want == "" || want == got }
	for _, r := range l.refusals {
		if r.Times == 0 || !is(r.Type, c.Form.Get("InstanceType")) || !is(r.Zone, zone) {
			continue
		}
		r.Times--
		f := messages[r.Code]
		return refused{&Failure{f.Status, r.Code, fmt.Sprintf(f.Message, c.Form.Get("InstanceType"), zone)}, r.Again}
	}
	return refused{}
}

// run launches machines, once per token and zone.
func (l *Launches) run(ctx context.Context, c *Call) (*Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = c.Form
	zone, err := l.zone(ctx, c)
	if err != nil {
		return nil, err
	}
	token := c.Form.Get("ClientToken")
	key := strings.Join([]string{c.Account, c.Region, token, zone}, " ")
	params := parameters(c)
	if before, ok := l.known[key]; ok && token != "" {
		if before.params != params {
			return nil, &Failure{
				400, "IdempotentParameterMismatch",
				"The client token you have provided is associated with a resource whose parameters do not match " +
					"those of this " +
					"request",
			}
		}
		return l.again(ctx, c, before.ids)
	}
	before := l.refused[key]
	if !before.again {
		before = l.refusal(c, zone)
	}
	if before.err != nil {
		l.refused[key] = before
		return nil, before.err
	}
	doc, err := l.server.ask(ctx, c, c.Form)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, i := range items(doc.Kid("instancesSet")) {
		id := i.Kid("instanceId").Text
		ids = append(ids, id)
		l.tokens[id] = token
		l.hidden[id] = l.late
		if err := l.learn(ctx, c, id, i); err != nil {
			return nil, err
		}
	}
	if token != "" {
		l.known[key] = knownLaunch{params, ids}
	}
	if err := l.server.protect(ctx, c, doc.Bytes()); err != nil {
		return nil, err
	}
	return &Reply{Raw: l.server.patches.apply(c, doc.Bytes())}, nil
}

// learn tags the interfaces of a machine as its launch requests, and records which are deleted with
// it: all except those for which the launch requests otherwise.
func (l *Launches) learn(ctx context.Context, c *Call, id string, i *Node) error {
	stays := map[string]bool{}
	for n := 1; c.Form.Get(fmt.Sprintf("NetworkInterface.%d.DeviceIndex", n)) != ""; n++ {
		key := fmt.Sprintf("NetworkInterface.%d.", n)
		stays[c.Form.Get(key+"DeviceIndex")] = c.Form.Get(key+"DeleteOnTermination") == "false"
	}
	tags := specified(c, "network-interface")
	for _, x := range items(i.Kid("networkInterfaceSet")) {
		at := x.Kid("attachment")
		if x.Kid("networkInterfaceId") == nil || at == nil || at.Kid("deviceIndex") == nil {
			continue
		}
		l.interfaces[id] = append(l.interfaces[id], attached{
			x.Kid("networkInterfaceId").Text, !stays[at.Kid("deviceIndex").Text],
		})
		if len(tags) == 0 {
			continue
		}
		form := url.Values{"Action": {"CreateTags"}, "ResourceId.1": {x.Kid("networkInterfaceId").Text}}
		for n, k := range sorted(tags) {
			form.Set(fmt.Sprintf("Tag.%d.Key", n+1), k)
			form.Set(fmt.Sprintf("Tag.%d.Value", n+1), tags[k])
		}
		if _, err := l.server.ask(ctx, c, form); err != nil {
			return err
		}
	}
	return nil
}

// specified returns the tags that a launch puts on a kind of resource.
func specified(c *Call, kind string) map[string]string {
	out := map[string]string{}
	for i := 1; ; i++ {
		of := c.Form.Get(fmt.Sprintf("TagSpecification.%d.ResourceType", i))
		if of == "" {
			return out
		}
		for j := 1; of == kind; j++ {
			key := fmt.Sprintf("TagSpecification.%d.Tag.%d.", i, j)
			if !c.Form.Has(key + "Key") {
				break
			}
			out[c.Form.Get(key+"Key")] = c.Form.Get(key + "Value")
		}
	}
}

// zone returns the zone that a launch names, directly or by its subnet; empty if there is none.
func (l *Launches) zone(ctx context.Context, c *Call) (string, error) {
	if z := c.Form.Get("Placement.AvailabilityZone"); z != "" {
		return z, nil
	}
	subnet := c.Form.Get("SubnetId")
	if subnet == "" {
		subnet = c.Form.Get("NetworkInterface.1.SubnetId")
	}
	if subnet == "" {
		return "", nil
	}
	doc, err := l.server.ask(ctx, c, url.Values{"Action": {"DescribeSubnets"}, "SubnetId.1": {subnet}})
	if err != nil {
		return "", err
	}
	if z := doc.Find("availabilityZone"); z != nil {
		return z.Text, nil
	}
	return "", nil
}

// parameters returns the parameters that launches with the same token must share.
func parameters(c *Call) string {
	form := url.Values{}
	for k, v := range c.Form {
		if k != "ClientToken" && k != "Version" {
			form[k] = v
		}
	}
	return form.Encode()
}

// again responds to a repeated launch with the current machines of the first one.
func (l *Launches) again(ctx context.Context, c *Call, ids []string) (*Reply, error) {
	form := url.Values{"Action": {"DescribeInstances"}}
	for i, id := range ids {
		form.Set("InstanceId."+strconv.Itoa(i+1), id)
	}
	doc, err := l.server.ask(ctx, c, form)
	if err != nil {
		return nil, err
	}
	reservations := items(doc.Kid("reservationSet"))
	if len(reservations) != 1 {
		return nil, fmt.Errorf("the machines of one launch are of %d reservations", len(reservations))
	}
	reply := &Reply{XML: reservations[0].Kids}
	return &Reply{Raw: l.server.patches.apply(c, document(c, reply).Bytes())}, nil
}

// describe implements the filter by token, which moto lacks, and omits hidden machines; other calls
// are moto's.
func (l *Launches) describe(ctx context.Context, c *Call) (*Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hides := slices.ContainsFunc(sorted(l.hidden), func(id string) bool { return l.hidden[id] })
	tokens, byToken := filters(c)["client-token"]
	if !byToken && !hides {
		return nil, nil
	}
	for _, id := range list(c, "InstanceId") {
		if l.hidden[id] {
			return nil, &Failure{400, "InvalidInstanceID.NotFound", "The instance ID '" + id + "' does not exist"}
		}
	}
	form := url.Values{}
	for k, v := range c.Form {
		form[k] = v
	}
	n := 0
	for i := 1; c.Form.Get(fmt.Sprintf("Filter.%d.Name", i)) != ""; i++ {
		key := fmt.Sprintf("Filter.%d.", i)
		for k := range form {
			if strings.HasPrefix(k, key) {
				form.Del(k)
			}
		}
		if c.Form.Get(key+"Name") == "client-token" {
			continue
		}
		n++
		for k, v := range c.Form {
			if rest, ok := strings.CutPrefix(k, key); ok {
				form[fmt.Sprintf("Filter.%d.%s", n, rest)] = v
			}
		}
	}
	doc, err := l.server.ask(ctx, c, form)
	if err != nil {
		return nil, err
	}
	set := doc.Kid("reservationSet")
	for _, r := range items(set) {
		instances := r.Kid("instancesSet")
		instances.Kids = slices.DeleteFunc(instances.Kids, func(i *Node) bool {
			id := i.Kid("instanceId").Text
			return l.hidden[id] || byToken && !slices.Contains(tokens, l.tokens[id])
		})
	}
	if set != nil {
		set.Kids = slices.DeleteFunc(set.Kids, func(r *Node) bool { return len(r.Kid("instancesSet").Kids) == 0 })
	}
	return &Reply{Raw: l.server.patches.apply(c, doc.Bytes())}, nil
}

// terminate ends machines and deletes what belongs to them: moto keeps interfaces attached to ended
// machines, and refuses to end a machine again whose interfaces are gone.
func (l *Launches) terminate(ctx context.Context, c *Call) (*Reply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw, err := l.ended(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, id := range list(c, "InstanceId") {
		for _, x := range l.interfaces[id] {
			if !x.deleted {
				l.server.Patch(Patch{
					Service: "ec2", IDField: "networkInterfaceId", ID: x.id, Beside: "requesterManaged",
					Set: map[string]any{"status": "available"}, Remove: []string{"attachment"},
				})
				continue
			}
			form := url.Values{"Action": {"DeleteNetworkInterface"}, "NetworkInterfaceId": {x.id}}
			if _, err := l.server.ask(ctx, c, form); err != nil && !isFailure(err) { // moto may have done it
				return nil, err
			}
		}
		delete(l.interfaces, id)
	}
	return &Reply{Raw: l.server.patches.apply(c, raw)}, nil
}

// ended ends machines at moto, including ended ones, and returns the response.
func (l *Launches) ended(ctx context.Context, c *Call) ([]byte, error) {
	again := func(err error) bool {
		f, is := err.(*Failure) //nolint:errorlint // ask returns it as it is
		return is && f.Code == "InvalidNetworkInterfaceID.NotFound"
	}
	doc, err := l.server.ask(ctx, c, c.Form)
	if err == nil {
		return doc.Bytes(), nil
	}
	if !again(err) {
		return nil, err
	}
	var answer strings.Builder
	answer.WriteString(`<TerminateInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instancesSet>`)
	for _, id := range list(c, "InstanceId") {
		if _, err := l.server.ask(ctx, c, url.Values{
			"Action": {"TerminateInstances"}, "InstanceId.1": {id},
		}); err != nil &&
			!again(err) {
			return nil, err
		}
		fmt.Fprintf(&answer,
			"<item><instanceId>%s</instanceId><currentState><code>48</code><name>terminated</name></currentState><previousState><code>48</code><name>terminated</name></previousState></item>", id)
	}
	answer.WriteString("</instancesSet></TerminateInstancesResponse>")
	return []byte(answer.String()), nil
}

func isFailure(err error) bool { _, ok := err.(*Failure); return ok } //nolint:errorlint // ask returns it as it is

func items(set *Node) []*Node {
	if set == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(set.Kids), func(n *Node) bool { return n.Name != "item" })
}

// ask makes an EC2 call to moto on behalf of the caller of c. A refusal by moto is a *Failure.
func (s *Server) ask(ctx context.Context, c *Call, form url.Values) (*Node, error) {
	if form.Get("Version") == "" {
		form.Set("Version", "2016-11-15")
	}
	if own := (&Call{Operation: form.Get("Action")}); own.Mutates() { // even if c itself only reads
		defer s.repeats.changing()()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.upstream+"/", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("write request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+c.AccessKey+"/20260101/"+c.Region+
		"/ec2/aws4_request, SignedHeaders=host, Signature=0")
	if token := c.Header.Get("X-Amz-Security-Token"); token != "" {
		req.Header.Set("X-Amz-Security-Token", token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read forwarded answer: %w", err)
	}
	doc, err := parseXML(body)
	if err != nil {
		return nil, fmt.Errorf("moto answered %s: %w", res.Status, err)
	}
	if res.StatusCode != http.StatusOK {
		if code, message := doc.Find("Code"), doc.Find("Message"); code != nil && message != nil {
			return nil, &Failure{res.StatusCode, code.Text, message.Text}
		}
		return nil, fmt.Errorf("moto answered %s: %s", res.Status, body)
	}
	return doc, nil
}
