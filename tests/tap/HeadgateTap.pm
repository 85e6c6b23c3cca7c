# Runs one of PostgreSQL's TAP tests with some of its clusters replaced by headgate nodes.
#
# The module wraps PostgreSQL::Test::Cluster->new. A cluster whose name matches HEADGATE_NODES gets init, start, stop, restart, reload,
# kill9, append_conf and adjust_conf of headgate. Everything else (psql, polls, wait_for_catchup, logs) is PostgreSQL's own code.
# The tests themselves are never changed. test_subscription.py runs them:
#
#   HEADGATE_NODES=subscriber perl -I . -MHeadgateTap .../001_rep_changes.pl
#
# Environment variables:
#
# HEADGATE_NODES          comma-separated regular expressions that match the names of the clusters that are nodes
# HEADGATE                the command that runs headgate (default: headgate, found through PATH)
# HEADGATE_PSQL_TIMEOUT   the time limit of one psql, in seconds (default 100)
#
# In PostgreSQL's harness a safe_psql that fails, or a poll or wait_for_log that times out, ends the test and hides the checks after it.
# Here it is one failed check, "HARNESS ...", that names the line of the test, and the test continues. The third time-out ends the test.
# skips.pl lists the SQL that nodes do not support and that is removed or replaced before it is sent. Each replacement is reported once
# as "SKIPPED on a node".
package HeadgateTap;

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils ();
use Test::More;
use Time::HiRes qw(time usleep);
use File::Basename;

our @node_patterns = split /,/, ($ENV{HEADGATE_NODES} // '');
our $timeouts = 0;
our $skips = do(dirname(__FILE__) . '/skips.pl');
die "skips.pl: $@$!" unless ref $skips;

sub is_node { my ($name) = @_; return scalar grep { $name =~ /^(?:$_)$/ } @node_patterns; }

# Returns the number of the line of the test that is running.
sub line
{
	for (my $i = 0; my @c = caller($i); $i++) { return $c[2] if basename($c[1]) eq basename($0); }
	return '?';
}

# Returns the error in the output of psql, or its first line.
sub short
{
	my ($text) = @_;
	my ($error) = $text =~ /((?:ERROR|FATAL|PANIC):[^\n]*)/;
	$error //= (split /\n/, $text)[0];
	return $error;
}

no warnings 'redefine';
my $new = \&PostgreSQL::Test::Cluster::new;
*PostgreSQL::Test::Cluster::new = sub {
	my ($class, $name, @rest) = @_;
	my $cluster = $new->($class, $name, @rest);
	bless $cluster, 'HeadgateTap::Node' if is_node($name);
	return $cluster;
};

my $psql = \&PostgreSQL::Test::Cluster::psql;
*PostgreSQL::Test::Cluster::psql = sub {
	my ($self, $dbname, $sql, %params) = @_;
	$sql = HeadgateTap::Node::_without($sql, !$self->isa('HeadgateTap::Node'));
	# A statement would block the test forever if it waited for a lock that PostgreSQL does not take.
	$params{timeout} //= $ENV{HEADGATE_PSQL_TIMEOUT} // 100;
	return $psql->($self, $dbname, $sql, %params);
};

my $safe_psql = \&PostgreSQL::Test::Cluster::safe_psql;
*PostgreSQL::Test::Cluster::safe_psql = sub {
	my ($self, @rest) = @_;
	my $result = eval { $safe_psql->($self, @rest) };
	if ($@)
	{
		my $error = $@;
		fail("HARNESS safe_psql on " . $self->name . ", line " . line() . ": " . short($error));
		note($error);
		return '';
	}
	return $result;
};

my $poll = \&PostgreSQL::Test::Cluster::poll_query_until;
*PostgreSQL::Test::Cluster::poll_query_until = sub {
	my ($self, $dbname, $query, $expected) = @_;
	local %ENV = $self->_get_env();
	$expected = 't' unless defined $expected;
	$query = HeadgateTap::Node::_without($query) if $self->isa('HeadgateTap::Node');
	my $cmd = [ $self->installed_command('psql'), '-XAt', '-d', $self->connstr($dbname) ];
	my ($stdout, $stderr) = ('', '');
	my $until = time() + $PostgreSQL::Test::Utils::timeout_default;
	while (time() < $until)
	{
		IPC::Run::run $cmd, '<', \$query, '>', \$stdout, '2>', \$stderr;
		chomp $stdout; chomp $stderr;
		return 1 if $stdout eq $expected && $stderr eq '';
		usleep(100_000);
	}
	my $message = "poll timed out on " . $self->name . ", line " . line();
	diag "$message\n$query\nexpected: $expected\nlast: $stdout\nstderr: $stderr";
	fail("HARNESS $message: " . ($stderr ? short($stderr) : "last '$stdout'"));
	return ++$timeouts < 3 ? 1 : 0;
};

my $wait_for_log = \&PostgreSQL::Test::Cluster::wait_for_log;
*PostgreSQL::Test::Cluster::wait_for_log = sub {
	my ($self, $regexp, $offset) = @_;
	my $end = eval { $wait_for_log->($self, $regexp, $offset) };
	return $end unless $@;
	fail("HARNESS wait_for_log on " . $self->name . ", line " . line() . ": $regexp");
	die "third time-out" if ++$timeouts >= 3;
	return -s $self->logfile;
};

package HeadgateTap::Node;

use strict;
use warnings;
use Test::More;
our @ISA = ('PostgreSQL::Test::Cluster');

my $command = $ENV{HEADGATE} // 'headgate';

sub init
{
	my ($self, %params) = @_;
	local %ENV = $self->_get_env();
	mkdir $self->backup_dir;
	mkdir $self->archive_dir;
	my $user = (getpwuid($<))[0];
	PostgreSQL::Test::Utils::system_or_bail($command, 'initdb', '-D', $self->data_dir, '-U', $user, '-A', 'trust', '-N', @{ $params{extra} // [] });
	# the settings that init of PostgreSQL::Test::Cluster writes, except those that a node does not have
	# (restart_after_crash, wal_log_hints, shared_buffers)
	my ($port, $host) = ($self->port, $self->host);
	my $conf = "\nfsync = off\nlog_line_prefix = '%m [%p] %q%a '\nlog_statement = all\nlog_replication_commands = on\n"
	  . "wal_retrieve_retry_interval = '500ms'\n";
	$conf .= $params{allows_streaming}
	  ? "wal_level = logical\nmax_wal_senders = 10\nmax_replication_slots = 10\nmax_connections = 10\nmax_wal_size = 128MB\n"
	  : "wal_level = minimal\nmax_wal_senders = 0\n";
	$conf .= "port = $port\nunix_socket_directories = '$host'\nlisten_addresses = ''\n";
	PostgreSQL::Test::Utils::append_to_file($self->data_dir . '/headgate.conf', $conf);
	return;
}

sub _file { my ($name) = @_; $name =~ s/^postgresql(\.auto)?\.conf$/'headgate' . ($1 \/\/ '') . '.conf'/e; return $name; }

sub append_conf { my ($self, $file, $text) = @_; return $self->SUPER::append_conf(_file($file), $text); }

sub adjust_conf { my ($self, $file, @rest) = @_; return $self->SUPER::adjust_conf(_file($file), @rest); }

sub _update_pid
{
	my ($self) = @_;
	$self->{_pid} = undef;
	if (open my $file, '<', $self->data_dir . '/headgate.pid') { chomp($self->{_pid} = <$file>); close $file; }
	return;
}

sub start
{
	my ($self, %params) = @_;
	local %ENV = $self->_get_env(PGAPPNAME => undef);
	print '### Starting node "' . $self->name . "\" (headgate)\n";
	my $failed = PostgreSQL::Test::Utils::system_log($command, 'start', '-D', $self->data_dir, '-l', $self->logfile, '-w');
	$self->_update_pid;
	if ($failed)
	{
		print PostgreSQL::Test::Utils::slurp_file($self->logfile) if -e $self->logfile;
		BAIL_OUT('headgate start failed') unless $params{fail_ok};
		return 0;
	}
	return 1;
}

sub stop
{
	my ($self, $mode, %params) = @_;
	local %ENV = $self->_get_env();
	return 1 unless defined $self->{_pid};
	my $failed = PostgreSQL::Test::Utils::system_log($command, 'stop', '-D', $self->data_dir, '-m', $mode // 'fast');
	$self->_update_pid;
	if ($failed)
	{
		BAIL_OUT('headgate stop failed') unless $params{fail_ok};
		return 0;
	}
	$self->{_pid} = undef;
	return 1;
}

sub restart
{
	my ($self) = @_;
	$self->stop('fast');
	$self->start;
	return 1;
}

sub reload
{
	my ($self) = @_;
	local %ENV = $self->_get_env();
	PostgreSQL::Test::Utils::system_or_bail($command, 'reload', '-D', $self->data_dir);
	return;
}

sub kill9
{
	my ($self) = @_;
	return unless defined $self->{_pid};
	kill 9, $self->{_pid};
	$self->{_pid} = undef;
	return;
}

# Returns the SQL with the replacements of skips.pl applied. SQL for a PostgreSQL cluster only gets the replacements that are marked as
# belonging to a publisher that is a node.
my $test = File::Basename::basename($0);
my %reported;

sub _without
{
	my ($sql, $to_publisher) = @_;
	for my $skip (@$HeadgateTap::skips)
	{
		my ($file, $pattern, $instead, $reason, $of_publisher) = @$skip;
		next unless $test =~ /^$file/;
		next if $of_publisher ? !HeadgateTap::is_node('publisher') : $to_publisher;
		my $number = ($sql =~ s/$pattern/$instead->($1)/ge);
		diag("SKIPPED on a node, line " . HeadgateTap::line() . ": $reason") if $number && !$reported{"$file$pattern"}++;
	}
	return $sql;
}

1;
