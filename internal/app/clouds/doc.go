// Package clouds knows every cloud: it opens accounts, metrics servers and launchers, and
// wires the ladder that acts on them. It alone imports internal/cloud/aws.
package clouds
