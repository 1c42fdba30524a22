package main

import (
	"errors"
	"strings"

	"github.com/coracle-io/coracle/cluster"
)

// flagOf are the flags of up by the fields of cluster.Options that they set.
func flagOf(field string) string {
	return map[string]string{
		"Name": "name", "DataDir": "data-dir", "LogLevels": "v", "BindAddress": "bind-address", "Ports.Secure": "secure-port",
		"ServiceCIDR": "service-cidr", "ClusterCIDR": "cluster-cidr", "NodeName": "node-name", "Node.BundleDir": "bundle",
		"APIServerArgs": "apiserver-arg", "ControllerManagerArgs": "controller-manager-arg", "SchedulerArgs": "scheduler-arg",
		"KubeletArgs": "kubelet-arg", "ProxyArgs": "proxy-arg", "EtcdArgs": "etcd-arg",
	}[field]
}

// inFlags returns the text of an error, in which flags stand for the fields of
// cluster.Options.
func inFlags(err error) string {
	text := err.Error()
	for _, f := range fieldErrors(err) {
		if flag := flagOf(f.Field); flag != "" {
			text = strings.Replace(text, f.Error(), "--"+flag+strings.TrimPrefix(f.Error(), f.Field), 1)
		}
	}
	return text
}

// fieldErrors are those that an error is joined of.
func fieldErrors(err error) []*cluster.FieldError {
	if field, ok := err.(*cluster.FieldError); ok {
		return []*cluster.FieldError{field}
	}
	var found []*cluster.FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			found = append(found, fieldErrors(one)...)
		}
	} else if inner := errors.Unwrap(err); inner != nil {
		found = fieldErrors(inner)
	}
	return found
}
