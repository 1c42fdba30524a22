package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-io/coracle/internal/host"
)

// Examine reports on this machine for a cluster. If the cluster is there, its
// settings count, and else those that are given and what up would choose. A
// record or settings that cannot be read are a finding. warn gets what is wrong
// with the records of other clusters.
func Examine(registry host.Registry, settings host.Settings, warn func(error)) (Report, error) {
	o := Options{}
	var err error
	if o.Clusters, err = registry.Present(); err != nil {
		return Report{}, err
	}
	var unreadable []Finding
	all, err := registry.List(warn)
	if err != nil {
		unreadable = append(unreadable, Finding{Check: "records", Status: Failed, Cause: err.Error(), Advice: "put right what it names: no cluster starts before"})
	}
	switch rec, err := registry.Find(settings.Options.Name); {
	case err == nil:
		o.Known = true
		if rec.Running() {
			o.Supervisor = rec.PID
		}
		given := settings
		if settings, err = host.ReadSettings(rec.DataDir); err != nil {
			settings = given
			settings.Options.DataDir, settings.Nodes = rec.DataDir, rec.Nodes
			unreadable = append(unreadable, Finding{
				Check: "settings", Status: Failed, Cause: err.Error(),
				Advice: fmt.Sprintf("put %s back, or mount the disk that has it; coracle down --data-dir=%s removes the cluster", host.SettingsFile(rec.DataDir), rec.DataDir),
			})
		}
	case !errors.Is(err, host.ErrNoCluster):
		o.Known = true
		name := settings.Options.Name
		unreadable = append(unreadable, Finding{
			Check: "records", Status: Failed, Cause: err.Error(),
			Advice: fmt.Sprintf("coracle up --name=%s --data-dir=DIR writes it again, coracle down --data-dir=DIR removes the cluster", name),
		})
	}
	if settings.Options.DataDir == "" {
		settings.Options.DataDir = registry.DataDir(settings.Options.Name)
	}
	if settings.Options.Ports.Manager == 0 { // new
		settings.Complete(settings.FreeSlot(all), "", "", "")
	}
	p := settings.Options.Ports
	o.Node, o.DataDir, o.BindAddress = settings.Nodes > 0, settings.Options.DataDir, settings.Options.BindAddress
	o.ServiceCIDR, o.ClusterCIDR, o.Encrypt = settings.Options.ServiceCIDR, settings.Options.ClusterCIDR, settings.Options.Encrypt
	if settings.Several() {
		o.NodeCIDR = settings.Options.Node.CIDR
	}
	o.NotBefore = validSince(filepath.Join(settings.Options.DataDir, "pki", "ca.crt"))
	o.Ports = []Port{{Flag: "--secure-port", Number: p.Secure}, {Number: p.Manager}, {Number: p.Scheduler}}
	joined := settings.Options.Node != nil && settings.Options.Node.Joined != nil
	if joined { // the control plane is elsewhere
		o.Ports = nil
	}
	if o.Node {
		if o.Inbound = []int{p.Secure, p.Kubelet, p.DNS}; joined {
			o.Inbound = []int{p.Kubelet}
		}
		for _, port := range []int{p.Kubelet, p.KubeletHealthz, p.ProxyHealthz, p.ProxyMetrics, p.DNS, p.DNSMetrics} {
			o.Ports = append(o.Ports, Port{Number: port})
		}
	}
	report := Diagnose(Read(o))
	report.Findings = append(unreadable, report.Findings...)
	return report, nil
}

// validSince returns when the certificate in a file begins to be valid, or the
// zero time.
func validSince(file string) time.Time {
	raw, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return time.Time{}
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return certificate.NotBefore
}
