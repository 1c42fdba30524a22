package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// moveMember stores that the member of etcd of a cluster on this machine is reached at
// another address, from its next start on. The settings have its URLs.
func moveMember(ctx context.Context, name string, from, to net.IP) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := changeSettings(ctx, name, func(s *host.Settings) error {
		s.Options.EtcdArgs = movedMember(s.Options.EtcdArgs, from, to)
		return nil
	})
	return err
}

// findMember gives the member of etcd of a cluster that does not run an address of this
// machine, if others reach the member at one that the machine does not have.
func findMember(o *cluster.Options) error {
	own := addressIn(lastArgument(o.EtcdArgs, "initial-advertise-peer-urls"))
	here, err := hasAddress(own)
	if own == nil || here || err != nil {
		return err
	}
	address, err := addressOf(*o)
	if err != nil || address.Equal(own) {
		return err
	}
	o.EtcdArgs = movedMember(o.EtcdArgs, own, address)
	fmt.Printf("The member of etcd of cluster %s moves to %s: this machine does not have %s.\n", o.Name, address, own)
	return nil
}

// movedMember returns the arguments of a member of etcd that others reach at one address
// with another one in its place.
func movedMember(arguments []string, from, to net.IP) []string {
	moved := slices.Clone(arguments)
	for i, argument := range moved {
		name, value, _ := strings.Cut(argument, "=")
		switch strings.TrimPrefix(name, "--") {
		case "initial-advertise-peer-urls", "listen-client-urls":
			value = movedURL(value, from, to)
		case "initial-cluster":
			members := strings.Split(value, ",")
			for j, member := range members {
				called, peerURL, _ := strings.Cut(member, "=")
				members[j] = called + "=" + movedURL(peerURL, from, to)
			}
			value = strings.Join(members, ",")
		default:
			continue
		}
		moved[i] = name + "=" + value
	}
	return moved
}

// movedURL returns a URL, with another address in place of one that is its host.
func movedURL(text string, from, to net.IP) string {
	u, err := url.Parse(text)
	if err != nil || !from.Equal(net.ParseIP(u.Hostname())) {
		return text
	}
	u.Host = net.JoinHostPort(to.String(), u.Port())
	return u.String()
}

// addressIn returns the address that is the host of a URL, nil if it is none.
func addressIn(text string) net.IP {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	return net.ParseIP(u.Hostname())
}

// hasAddress reports whether this machine has an address.
func hasAddress(address net.IP) (bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("addresses of this machine: %w", err)
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		prefix, ok := a.(*net.IPNet)
		return ok && prefix.IP.Equal(address)
	}), nil
}
