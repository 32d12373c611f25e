#!/bin/sh
# Runs git for a read. Whatever a repository configures, git starts no program of the repository's
# choice and shows no file by its object id alone, because nothing then tells a secret file apart.
set -f
program=@PROGRAM@
hidden=@HIDDEN@

refuse() {
	printf 'pvp: %s, or propose `env git …` to have people asked\n' "$1" >&2
	exit 128
}

# Sets a configuration value that wins over every file.
override() {
	export "GIT_CONFIG_KEY_$GIT_CONFIG_COUNT=$1" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=$2"
	GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
}

own_settings=$GIT_CONFIG_COUNT
while [ $# -gt 0 ]; do
	case $1 in
	-C)
		[ $# -gt 1 ] || exec "$program" "$@"
		case $2 in
		'') ;;
		/*) cd "$2" || exit 128 ;;
		*) cd "./$2" || exit 128 ;;
		esac
		shift
		;;
	-c)
		# Programs that call git do this; a read's own line may not.
		case ${2-} in
		*=*) override "${2%%=*}" "${2#*=}" ;;
		*) override "${2-}" true ;;
		esac
		[ $# -lt 2 ] || shift
		;;
	--no-pager | -P | --no-optional-locks | --no-lazy-fetch | --no-replace-objects) ;;
	--literal-pathspecs) export GIT_LITERAL_PATHSPECS=1 ;;
	--glob-pathspecs) export GIT_GLOB_PATHSPECS=1 ;;
	--icase-pathspecs) export GIT_ICASE_PATHSPECS=1 ;;
	--version | -v) exec "$program" --version ;;
	-*) refuse "a read cannot use \`git $1\`; leave it out" ;;
	*) break ;;
	esac
	shift
done
[ $# -gt 0 ] || exec "$program"
command=$1
shift

# The settings of this file once more, so that no `-c` comes after them.
at=0
while [ "$at" -lt "$own_settings" ]; do
	eval "override \"\$GIT_CONFIG_KEY_$at\" \"\$GIT_CONFIG_VALUE_$at\""
	at=$((at + 1))
done
# An alias runs where git has no command of that name.
override "alias.$command" ''
# Attributes choose a filter by its name, so each has to be switched off by its name.
filters=$("$program" config --name-only --get-regexp '^filter\..*\.(clean|smudge|process|required)$')
status=$?
[ "$status" -le 1 ] || exit "$status"
while IFS= read -r key; do
	case $key in
	'') ;;
	*.required) override "$key" false ;;
	*) override "$key" '' ;;
	esac
done <<FILTERS
$filters
FILTERS
export GIT_CONFIG_COUNT

case $command in
show | diff | grep)
	for word; do
		case $word in
		--) break ;;
		-* | *:*) ;;
		*)
			kind=$("$program" cat-file -t "$word^{}" 2>/dev/null)
			[ "$kind" != blob ] ||
				refuse "\`$word\` is the content of a file without its name; give it as REVISION:PATH"
			;;
		esac
	done
	;;
esac

# Git gives up on a changed file that it cannot read, so such files are left out of comparisons with
# the working tree, and named.
case $command in
diff | diff-files | diff-index)
	top=
	[ ! -s "$hidden" ] || top=$("$program" rev-parse --show-toplevel 2>/dev/null)
	if [ -n "$top" ]; then
		options=$#
		while IFS= read -r path; do
			case $path in
			"$top"/*) set -- "$@" ":(top,literal)${path#"$top"/}" ;;
			esac
		done <"$hidden"
		changed=
		if [ $# -gt "$options" ]; then
			changed=$(
				shift "$options"
				"$program" -c core.quotePath=false diff-files --name-only --ignore-submodules=dirty -- "$@"
			)
		fi
		# What was added above is removed again, by going once around.
		count=$#
		at=0
		while [ "$at" -lt "$count" ]; do
			[ "$at" -ge "$options" ] || set -- "$@" "$1"
			shift
			at=$((at + 1))
		done
		while IFS= read -r path; do
			[ -n "$path" ] || continue
			printf 'pvp: not shown: %s has changes, and usually holds secrets\n' "$path" >&2
			set -- "$@" ":(top,literal,exclude)$path"
		done <<CHANGED
$changed
CHANGED
	fi
	;;
esac

# Diff drivers are chosen by attributes too, and a submodule has settings of its own.
case $command in
diff | log | show | diff-tree | diff-index | diff-files)
	set -- --no-ext-diff --no-textconv --ignore-submodules=dirty "$@"
	;;
blame | annotate)
	set -- --no-textconv "$@"
	;;
status)
	set -- --ignore-submodules=dirty "$@"
	;;
stash)
	subcommand=${1-}
	[ $# -eq 0 ] || shift
	set -- "$subcommand" --no-ext-diff --no-textconv --ignore-submodules=dirty "$@"
	;;
esac
exec "$program" "$command" "$@"
