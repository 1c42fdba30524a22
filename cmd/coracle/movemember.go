package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host"
)

// moveMember stores that the member of etcd of a cluster on this machine is reached at
// another address, in place of those that the machine does not have, from its next start
// on. The settings have its URLs.
func moveMember(ctx context.Context, name string, to net.IP) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := changeSettings(ctx, name, func(s *host.Settings) error {
		lost, err := lostAddresses(s.Options.EtcdArgs)
		s.Options.EtcdArgs = movedMember(s.Options.EtcdArgs, lost, to)
		return err
	})
	return err
}

// findMember gives the member of etcd of a cluster that does not run an address of this
// machine, if the member listens at one that the machine does not have. Without any
// address, it leaves the member where it is: the start waits for the network.
func findMember(o *cluster.Options) error {
	lost, err := lostAddresses(o.EtcdArgs)
	if err != nil || len(lost) == 0 {
		return err
	}
	address, err := addressOf(*o)
	if errors.Is(err, apiserver.ErrNoAddress) {
		return nil
	}
	if err != nil {
		return err
	}
	moved := movedMember(o.EtcdArgs, lost, address)
	if slices.Equal(moved, o.EtcdArgs) { // another machine translates the address
		return nil
	}
	o.EtcdArgs = moved
	fmt.Printf("The member of etcd of cluster %s moves to %s: this machine does not have %s.\n", o.Name, address, lost[0])
	return nil
}

// lostAddresses returns the addresses at which a member of etcd with these arguments
// listens, and which this machine does not have.
func lostAddresses(arguments []string) (lost []net.IP, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of this machine: %w", err)
	}
	for _, name := range []string{"initial-advertise-peer-urls", "listen-client-urls"} {
		own := addressIn(flagvalue.Last(arguments, name))
		if own == nil || own.IsUnspecified() || own.IsLoopback() {
			continue
		}
		if !slices.ContainsFunc(all, func(a net.Addr) bool {
			prefix, ok := a.(*net.IPNet)
			return ok && prefix.IP.Equal(own)
		}) {
			lost = append(lost, own)
		}
	}
	return lost, nil
}

// movedMember returns the arguments of a member of etcd with another address in place of
// those from which it moves.
func movedMember(arguments []string, from []net.IP, to net.IP) []string {
	moved := slices.Clone(arguments)
	for i, argument := range moved {
		a := flagvalue.ParseArgument(argument)
		value := a.Value
		switch a.Name {
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
		moved[i] = strings.TrimSuffix(argument, a.Value) + value
	}
	return moved
}

// movedURL returns a URL, with another address if its host is one of those in from.
func movedURL(text string, from []net.IP, to net.IP) string {
	u, err := url.Parse(text)
	if err != nil || !slices.ContainsFunc(from, net.ParseIP(u.Hostname()).Equal) {
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
