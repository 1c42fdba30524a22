package client

import (
	"fmt"
	"runtime"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/pkg/version"
)

// identity returns the user info of a client. It adds the groups of service accounts
// and of authenticated users.
func identity(name string, groups []string) user.Info {
	all := append([]string(nil), groups...)
	if namespace, _, err := serviceaccount.SplitUsername(name); err == nil {
		all = append(all, serviceaccount.MakeGroupNames(namespace)...)
	}
	return &user.DefaultInfo{Name: name, Groups: append(all, user.AllAuthenticated)}
}

// userAgent returns the user agent of the upstream component that has the user name.
// The API server derives field managers from it.
func userAgent(name string) string {
	suffix := ""
	component := "coracle"
	switch {
	case name == user.KubeScheduler:
		component = "kube-scheduler"
	case name == user.KubeProxy:
		component = "kube-proxy"
	case name == loopback:
		component = "kube-apiserver"
	case strings.HasPrefix(name, "system:node:"):
		component = "kubelet"
	case name == user.KubeControllerManager:
		component = "kube-controller-manager"
	case strings.HasPrefix(name, serviceaccount.ServiceAccountUsernamePrefix+"kube-system:"):
		component, suffix = "kube-controller-manager", "/"+name
	}
	return fmt.Sprintf("%s/%s (%s/%s) coracle%s", component, version.Get().GitVersion, runtime.GOOS, runtime.GOARCH, suffix)
}
