/* SPDX-License-Identifier: MIT
 * stint complete: what the completions of all shells ask. Which options there are, and what values
 * they have, the --help of each command says. */
#include "complete.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stint.h>

#include "attach.h"
#include "common.h"

/* The words of a command line, and the one that is to be completed. */
struct words {
    const struct command *command;
    char **of; /* behind the command */
    int count, asked;
    char *help;
};

static void offer(const char *begin, const char *text, size_t length) {
    if (strncmp(text, begin, strlen(begin)) == 0 && length >= strlen(begin))
        printf("%.*s\n", (int)length, text);
}

/* What the command's --help prints, in a child: it is written to standard output. */
static char *help_of(const struct command *command) {
    char name[32], option[] = "--help", piece[4096], *words[] = {name, option, NULL}, *help;
    int ends[2];
    size_t size;
    FILE *text = must_have(open_memstream(&help, &size));

    snprintf(name, sizeof(name), "%s", command->name);
    const pid_t child = pipe(ends) != 0 ? -1 : fork();
    if (child == 0) {
        struct arguments arguments;
        (void)dup2(ends[1], STDOUT_FILENO);
        (void)(command->run_alone != NULL ? command->run_alone(2, words)
                                          : command_read(command, 2, words, &arguments));
        fflush(stdout);
        _exit(EXIT_GOOD);
    }
    if (child > 0) {
        close(ends[1]);
        for (ssize_t got; (got = read(ends[0], piece, sizeof(piece))) > 0;)
            fwrite(piece, 1, (size_t)got, text);
        close(ends[0]);
        (void)waitpid(child, NULL, 0);
    }
    fclose(text);
    return help;
}

/* An option in a line of the help: its name behind "--", and its value's. NULL: there is none.
 * *length: 0 without a value of its own word. */
static const char *option_in(const char *line, size_t *name, const char **value, size_t *length) {
    if (line[0] == ' ' && line[1] == ' ' && line[2] == '-' && line[3] != '-')
        line += 4; /* a letter and a comma */
    if (strncmp(line, "  --", 4) != 0 && strncmp(line, ", --", 4) != 0 &&
        strncmp(line, " --", 3) != 0)
        return NULL;
    const char *option = strstr(line, "--");
    *name = 2 + strspn(option + 2, "abcdefghijklmnopqrstuvwxyz-");
    *value = option + *name + 1;
    *length = option[*name] == ' ' ? strcspn(*value, " \n") : 0;
    /* Behind one blank stands a value; behind more the explanation. */
    if (*length != 0 && memchr(*value, '|', *length) == NULL && (**value < 'A' || **value > 'Z'))
        *length = 0;
    return option;
}

/* The value that a word asks for, if it is an option and none stands in the word. */
static const char *value_of(const struct words *words, const char *word, size_t *length) {
    size_t name;
    const char *value;

    for (const char *line = words->help; *line != '\0'; line += strcspn(line, "\n") + 1) {
        const char *option = option_in(line, &name, &value, length);
        if (option != NULL && *length != 0 &&
            ((strlen(word) == name && strncmp(option, word, name) == 0) ||
             (strlen(word) == 2 && word[0] == '-' && strncmp(line, "  -", 3) == 0 &&
              line[3] == word[1])))
            return value;
        if (line[strcspn(line, "\n")] == '\0')
            break;
    }
    return NULL;
}

static void offer_options(const struct words *words, const char *begin) {
    size_t name, length;
    const char *value;

    for (const char *line = words->help; *line != '\0'; line += strcspn(line, "\n") + 1) {
        const char *option = option_in(line, &name, &value, &length);
        if (option != NULL)
            offer(begin, option, name);
        if (line[strcspn(line, "\n")] == '\0')
            break;
    }
}

/* The policies of the first word that is a table. */
static int offer_policies(const struct words *words, const char *begin) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter = NULL;
    struct policies policies;
    char shown[4 * STINT_NAME_SIZE];

    options.flags = STINT_READ_ONLY;
    for (int i = 0; i < words->count && limiter == NULL; i++) {
        options.path = words->of[i];
        if (i == words->asked || stint_attach(&options, &limiter) != 0)
            limiter = NULL;
    }
    if (limiter == NULL)
        return EXIT_GOOD;
    policies_read(&policies, limiter);
    for (uint32_t id = 0; id < policies.count; id++) {
        const struct stint_policy *policy = policies_at(&policies, id);
        const size_t length = policy == NULL ? 0 : strlen(policy->name);
        /* What a terminal may not see cannot be typed either. */
        if (policy != NULL &&
            strcmp(printable(shown, sizeof(shown), policy->name, length), policy->name) == 0)
            offer(begin, policy->name, length);
    }
    policies_free(&policies);
    stint_close(limiter);
    return EXIT_GOOD;
}

/* The words of a value: "admit|refuse". Any other is that of a policy, of a file, or free. */
static int offer_value(const struct words *words, const char *option, const char *value,
                       size_t length, const char *begin) {
    if (strcmp(option, "--policy") == 0)
        return offer_policies(words, begin);
    if (memchr(value, '|', length) == NULL)
        return length == 4 && strncmp(value, "FILE", 4) == 0 ? EXIT_FAILED : EXIT_GOOD;
    while (length != 0) {
        const char *bar = memchr(value, '|', length);
        const size_t word = bar == NULL ? length : (size_t)(bar - value);
        offer(begin, value, word);
        value += word + (bar != NULL);
        length -= word + (bar != NULL);
    }
    return EXIT_GOOD;
}

static int offer_word(const struct words *words) {
    const char *word = words->of[words->asked], *value, *option = NULL;
    const char *operands = words->command->operands;
    size_t length = 0, at = 0;

    for (int i = 0; i < words->asked; i++) {
        option = option == NULL && words->of[i][0] == '-' ? words->of[i] : NULL;
        value = option == NULL ? NULL : value_of(words, option, &length);
        if (value != NULL && i + 1 == words->asked)
            return offer_value(words, option, value, length, word);
        if (option == NULL)
            at++;
        else if (value != NULL)
            i++;
        option = NULL;
    }
    if (word[0] == '-') {
        offer_options(words, word);
        return EXIT_GOOD;
    }
    if (operands == NULL)
        return EXIT_FAILED; /* logs */
    const char operand = at < strlen(operands) ? operands[at] : 'K';
    if (operand == 'P')
        return offer_policies(words, word);
    return operand == 'F' || operand == 'T' ? EXIT_FAILED : EXIT_GOOD;
}

int complete(const struct command *commands, size_t n, int argc, char **argv) {
    uint64_t asked;
    struct words words = {.of = argv + 3, .count = argc - 3};

    if (argc < 3 || !parse_count(argv[1], 0, (uint64_t)(argc - 3), &asked))
        return usage_error("complete", "it is for the completions of shells");
    if (asked == 0) {
        offer(argv[2], "--help", 6);
        offer(argv[2], "--version", 9);
        for (size_t i = 0; i < n; i++)
            offer(argv[2], commands[i].name, strlen(commands[i].name));
        return EXIT_GOOD;
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(commands[i].name, argv[2]) == 0)
            words.command = &commands[i];
    if (words.command == NULL)
        return EXIT_GOOD;
    words.asked = (int)asked - 1;
    words.help = help_of(words.command);
    const int code = offer_word(&words);
    free(words.help);
    return code;
}
