package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	remote "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"github.com/coracle-io/coracle/internal/version"
)

// Target is the container of a probe or hook.
type Target struct {
	Pod         *v1.Pod
	Container   *v1.Container
	ContainerID string
	IP          string
}

// Exec runs a command in a container and returns its output. If the command ends
// with another code than 0, the error has an ExitStatus method.
type Exec func(ctx context.Context, containerID string, command []string, timeout time.Duration) (output []byte, err error)

// Runner runs the handlers of probes and hooks.
type Runner struct {
	Exec Exec
	// Dial connects to pods; nil is the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	turns turns
}

const (
	maxBody      = 10 << 10 // bytes of a body or an output that are read or kept
	maxHeader    = 64 << 10 // bytes of the headers of an answer
	maxMessage   = 64 << 10 // bytes of a gRPC message
	userAgent    = "kube-probe/" + version.Release
	hookAgent    = "kube-lifecycle/" + version.Release
	maxRedirects = 10
)

func (r *Runner) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if r.Dial != nil {
		return r.Dial(ctx, network, address)
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: false}}
	return dialer.DialContext(ctx, network, address)
}

// Run runs the handler once and returns whether it succeeded, and at most 10 KiB
// of its output. The error reports that the handler could not be run, or is a
// Warning.
func (r *Runner) Run(ctx context.Context, p *v1.Probe, t Target) (ok bool, output string, err error) {
	ok, output, err = r.handle(ctx, p, t)
	return ok, output[:min(len(output), maxBody)], err
}

func (r *Runner) handle(ctx context.Context, p *v1.Probe, t Target) (ok bool, output string, err error) {
	timeout := time.Duration(max(p.TimeoutSeconds, 1)) * time.Second
	switch {
	case p.Exec != nil:
		return r.exec(ctx, p.Exec.Command, t, timeout)
	case p.HTTPGet != nil:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return r.HTTP(ctx, p.HTTPGet, t)
	case p.TCPSocket != nil:
		return r.tcp(ctx, p.TCPSocket, t, timeout)
	case p.GRPC != nil:
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return r.grpc(ctx, p.GRPC, t)
	}
	return false, "", fmt.Errorf("missing probe handler for %s", t.Container.Name)
}

func (r *Runner) exec(ctx context.Context, command []string, t Target, timeout time.Duration) (bool, string, error) {
	output, err := r.Command(ctx, command, t, timeout)
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return true, output, nil
	case errors.As(err, &exit):
		return exit.ExitStatus() == 0, output, nil
	case errors.Is(err, remote.ErrCommandTimedOut), status.Code(err) == codes.DeadlineExceeded:
		return false, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout), nil
	}
	return false, output, err
}

// Command runs a command in the target's container in its turn: of a probe, or of a hook,
// which has no timeout, 0. It returns at most 10 KiB of the output. The error of a command
// that has exited with a code other than 0 quotes no more either.
func (r *Runner) Command(ctx context.Context, command []string, t Target, timeout time.Duration) (output string, err error) {
	raw, err := r.turns.run(ctx, t.Pod, timeout == 0, func() ([]byte, error) { return r.Exec(ctx, t.ContainerID, command, timeout) })
	var exit utilexec.ExitError
	if errors.As(err, &exit) {
		text := err.Error()
		err = utilexec.CodeExitError{Err: errors.New(strings.Clone(text[:min(len(text), maxBody)])), Code: exit.ExitStatus()}
	}
	return string(raw[:min(len(raw), maxBody)]), err
}

// Port returns the number of a port of a probe or hook, which may be the name of
// a port of the container.
func Port(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range c.Ports {
			if p.Name == port.StrVal {
				n = int(p.ContainerPort)
			}
		}
		if n == 0 {
			var err error
			if n, err = strconv.Atoi(port.StrVal); err != nil {
				return 0, fmt.Errorf("couldn't find port: %s in container %s", port.StrVal, c.Name)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", n)
	}
	return n, nil
}

// Warning is the error of a probe that succeeded with a warning.
type Warning struct{ text string }

func (w *Warning) Error() string { return w.text }

// httpRequest returns the request of an httpGet handler. A header of the handler
// replaces the kubelet's header; an empty Accept header removes it.
func httpRequest(ctx context.Context, action *v1.HTTPGetAction, t Target, agent string) (*http.Request, error) {
	port, err := Port(action.Port, t.Container)
	if err != nil {
		return nil, err
	}
	host := action.Host
	if host == "" {
		host = t.IP
	}
	scheme := strings.ToLower(string(action.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	target, err := url.Parse(action.Path)
	if err != nil {
		target = &url.URL{Path: action.Path}
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range action.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			request.Host = h.Value
		}
	}
	if !has(request.Header, "User-Agent") {
		request.Header.Set("User-Agent", agent)
	}
	if !has(request.Header, "Accept") {
		request.Header.Set("Accept", "*/*")
	} else if request.Header.Get("Accept") == "" {
		request.Header.Del("Accept")
	}
	return request, nil
}

func has(h http.Header, name string) bool { return len(h.Values(name)) > 0 }

func (r *Runner) httpClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: r.dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
			// Probes do not verify the certificates of pods, as in upstream.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= maxRedirects {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

// HTTP sends a probe's request. Every code from 200 to 399 is a success. A
// redirect to another host is a success with a Warning.
func (r *Runner) HTTP(ctx context.Context, action *v1.HTTPGetAction, t Target) (bool, string, error) {
	request, err := httpRequest(ctx, action, t, userAgent)
	if err != nil {
		return false, "", err
	}
	response, err := r.httpClient().Do(request)
	if err != nil {
		return false, err.Error(), nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return false, err.Error(), nil
	}
	switch code := response.StatusCode; {
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return true, "", &Warning{fmt.Sprintf("Probe terminated redirects, Response body: %s", body)}
	case code >= http.StatusOK && code < http.StatusBadRequest:
		return true, string(body), nil
	}
	return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", response.StatusCode), nil
}

// Hook sends the request of a lifecycle hook. Every answer of the container is a
// success. If a server answers an HTTPS request in plain HTTP, Hook sends the
// request again by HTTP without credentials, and fallback is true.
func (r *Runner) Hook(ctx context.Context, action *v1.HTTPGetAction, t Target) (fallback bool, err error) {
	request, err := httpRequest(ctx, action, t, hookAgent)
	if err != nil {
		return false, err
	}
	client := r.httpClient()
	response, err := client.Do(request)
	if errors.Is(err, http.ErrSchemeMismatch) {
		request.URL.Scheme, fallback = "http", true
		request.Header.Del("Authorization")
		response, err = client.Do(request)
	}
	if err != nil {
		return false, err
	}
	return fallback, response.Body.Close()
}

func (r *Runner) tcp(ctx context.Context, action *v1.TCPSocketAction, t Target, timeout time.Duration) (bool, string, error) {
	port, err := Port(action.Port, t.Container)
	if err != nil {
		return false, "", err
	}
	host := action.Host
	if host == "" {
		host = t.IP
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := r.dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false, err.Error(), nil
	}
	_ = conn.Close()
	return true, "", nil
}

func (r *Runner) grpc(ctx context.Context, action *v1.GRPCAction, t Target) (bool, string, error) {
	service := ""
	if action.Service != nil {
		service = *action.Service
	}
	address := net.JoinHostPort(t.IP, strconv.Itoa(int(action.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent(userAgent),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithStaticStreamWindowSize(maxMessage), // what arrives before a message is refused
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return r.dial(ctx, "tcp", a) }))
	if err != nil {
		return false, err.Error(), nil
	}
	defer func() { _ = conn.Close() }()
	answer, err := grpchealth.NewHealthClient(conn).Check(ctx, &grpchealth.HealthCheckRequest{Service: service}, grpc.WaitForReady(true))
	if err != nil {
		switch status.Code(err) {
		case codes.Unimplemented:
			return false, fmt.Sprintf("this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", err), nil
		case codes.DeadlineExceeded:
			return false, fmt.Sprintf("timeout: failed to connect service %q within the probe's timeout: %v", address, err), nil
		}
		return false, fmt.Sprintf("error: health rpc probe failed: %v", err), nil
	}
	if answer.GetStatus() != grpchealth.HealthCheckResponse_SERVING {
		return false, fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus()), nil
	}
	return true, "service healthy", nil
}
